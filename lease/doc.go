// Package lease implements locks, leader election and leases on any [storage.Backend] that is a [storage.Transactor]. A lock assigns a task to
// one process at a time. A lease deletes the resources that are attached to it when its holder stops renewing it.
//
//	candidate := lease.NewElector(backend, tenancy, "scheduler", nil)
//	tenure, err := candidate.Campaign(ctx) // waits until the lock is free
//	...
//	_, err = tx.Commit(ctx, []storage.Op{{Write: task}, tenure.Fence()})
//
// # Guarantees of a lock
//
// At most one tenure can commit at any time:
//
//  1. Each tenure has an epoch, and epochs only grow.
//  2. A transaction with the Fence of a tenure fails once a later tenure has begun. This holds for any clock error, and for a holder that was
//     paused and has not noticed its loss.
//  3. Work outside the store is not fenced. Do it only while Tenure.Done is open, and expect an overlap after a process was paused.
//
// A candidate never overtakes a live holder:
//
//  1. The holder renews a heartbeat every third of the time to live.
//  2. Another candidate takes over after it has observed the same heartbeat for the whole time to live, measured by its own monotonic clock.
//  3. The transaction that takes over proves that this heartbeat is still the stored one.
//
// No two clocks are compared. The cost: a new candidate waits for the whole time to live, however long the holder has been dead.
//
// A holder ends its tenure itself if it has not renewed for two thirds of the time to live, counted from the start of the last successful
// renewal. A renewal that hangs, as on a dead connection, times out early enough for another attempt.
//
// # Stored resources of a lock
//
// A lock is two resources of one name. coordination/Lock holds the holder and the epoch. It does not change during a tenure, so that Fence can
// check its version. coordination/Heartbeat changes with each renewal and is owned by the lock. Neither is ever deleted.
//
// # Leases
//
// A lease is a resource that exists as long as it is renewed. Other resources are attached to it by naming it as their owner, in a transaction
// that proves that the lease is alive:
//
//	keeper, err := lease.NewKeeper(backend, tenancy)
//	session, err := keeper.Grant(ctx, "session-1", 30*time.Second)
//	...
//	endpoint.Owner = session.Owner()
//	_, err = tx.Commit(ctx, []storage.Op{session.Alive(), {Write: endpoint}})
//
// A [Keeper] ends a lease in these steps:
//
//  1. It has observed the same renewal for the whole time to live, by its own monotonic clock.
//  2. A transaction marks the lease's record as ended, and proves that this renewal is still the stored one. Afterwards nothing can be
//     attached.
//  3. The keeper deletes each attached resource at the version that it has read, and then the record.
//
// Any keeper that finds the mark continues with step 3. No lease ends early, whatever the clocks do. The cost: the time to live starts again
// after all keepers were restarted. A resource that was rewritten without the owner is no longer attached and stays.
//
// A lease is two resources of one name. lease/Lease holds the time to live and does not change until the lease ends. lease/Renewal changes with
// each renewal and names the lease's uid.
//
// # Deleted and unreadable records
//
// If the record of a lease is deleted by another program, keepers delete its attached resources. A keeper that has watched the record knows the
// uid; other keepers find it in the renewal.
//
// A lease whose record cannot be read, such as one of another version of this package, ends only when it is revoked. The same holds for a
// record that was damaged in the database: nothing can watch leases before it is replaced, so a keeper replaces it with a record without a
// time to live. A damaged renewal is deleted, and the time to live starts again.
package lease
