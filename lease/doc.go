// Package lease has locks, leader election and leases over any [storage.Backend] that is a [storage.Transactor]. A lock gives one process
// at a time a task; a lease ends what is attached to it when nobody renews it any more.
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
// that succeeded. A renewal that hangs, as on a connection that is dead and does not say so, is given up early enough for another one.
//
// # What is stored
//
// A lock is two resources of one name: coordination/Lock says who holds it and in which epoch, and stands still during a tenure, so that
// Fence can be a Check of its version; coordination/Heartbeat changes with each renewal, and is owned by the lock. Neither is ever deleted.
//
// # Leases
//
// A lease is a resource that lives as long as somebody renews it. Others are attached to it by naming it as their owner, in a transaction
// that proves that the lease is alive:
//
//	keeper, err := lease.NewKeeper(backend, tenancy)
//	session, err := keeper.Grant(ctx, "session-1", 30*time.Second)
//	...
//	endpoint.Owner = session.Owner()
//	_, err = tx.Commit(ctx, []storage.Op{session.Alive(), {Write: endpoint}})
//
// A [Keeper] ends a lease when it has seen, by its own monotonic clock, the same renewal for the whole time to live, and proves in the
// transaction that ends it that this is the one that is stored. So no lease ends early, whatever clocks do; the price is that time counts
// anew when all keepers were restarted. The end begins with a mark in the lease's record: from then on nothing can be attached. Then what is
// attached is deleted, each as it was read, and at last the record. Whichever keeper finds the mark goes on from there. A resource that was
// rewritten without the owner is not attached any more and stays.
//
// A lease is two resources of one name: lease/Lease says for how long it lives, and stands still until its end; lease/Renewal changes
// each time it is renewed, and names the lease's uid. If somebody deletes the record of a lease, keepers delete what was attached to it: one
// that watched knows the uid, and the others find it in the renewal that is left. A lease whose record a keeper cannot read, one of another
// version of this package, ends only when it is revoked. So does one whose record was damaged in the database: a keeper writes one without a
// time to live in its place, since nobody can watch leases before. A renewal that was damaged is deleted, and the time to live counts anew.
package lease
