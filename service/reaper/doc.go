// Package reaper deletes what deleted resources owned.
//
// The resource service leaves a tombstone in the transaction that deletes a resource. A Reaper watches tombstones, and deletes the
// resources that name the deleted one as their owner, by its uid, as the service deletes them: those with finalizers are marked, and each
// leaves a tombstone of its own, so that whole trees go, level by level.
//
//	r := reaper.New(server, nil)
//	go r.Run(ctx)
//
// # What is proven before anything is deleted
//
// A tombstone alone proves nothing: the deletion that it was written for may have failed. So the reaper first reads the owner strongly, and
// leaves its children alone as long as that incarnation of it is stored. An owner that was created anew has another uid, and keeps what it
// owns. A child is deleted at the version at which it was seen to name the owner.
//
// # When a tombstone goes
//
// A writer may be about to create a child of an owner that was just deleted. So a tombstone is kept until two looks at what the owner owns,
// Options.Settle apart, have both found nothing. What is created later than that stays: give its writer a deadline that is shorter.
//
// Any number of reapers may run over one store. They do the same work twice, and nothing wrong.
package reaper
