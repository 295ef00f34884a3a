// Package lease gives one process at a time a task: locks and leader election over any [storage.Backend] that is a [storage.Transactor].
//
//	candidate := lease.NewElector(backend, tenancy, "scheduler", nil)
//	tenure, err := candidate.Campaign(ctx) // waits for its turn
//	...
//	_, err = tx.Commit(ctx, []storage.Op{{Write: task}, tenure.Fence()})
//
// # What is promised
//
// At any time one process holds a lock, as far as the store can tell: each tenure has an epoch, epochs only grow, and whoever is overtaken
// cannot commit anything any more that goes with its Fence. That holds whatever clocks do, and for a holder that was paused and does not
// know yet. Work that does not go through the store is not fenced: do it only while Tenure.Done is open, and expect an overlap when a
// process was paused.
//
// Nobody is overtaken early. The holder renews a heartbeat every third of the time to live. Another candidate takes over when it has seen,
// by its own monotonic clock, the same heartbeat for the whole time to live, and in the same transaction proves that it is still the one
// that is stored. No two clocks are compared. The price: a candidate that comes new waits the whole time, however long the holder has been
// dead.
//
// The holder gives up by itself when it has not renewed for two thirds of the time to live, counted from the beginning of the last renewal
// that succeeded.
//
// # What is stored
//
// A lock is two resources of one name: coordination/Lock says who holds it and in which epoch, and stands still during a tenure, so that
// Fence can be a Check of its version; coordination/Heartbeat changes with each renewal, and is owned by the lock. Neither is ever deleted.
package lease
