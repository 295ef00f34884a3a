// Package reaper deletes the resources that deleted resources owned.
//
// The resource service leaves a tombstone in the transaction that deletes a resource. A Reaper watches tombstones and deletes the resources whose
// owner, including its uid, is the deleted resource. It deletes them as the service does: resources with finalizers are marked, and each deleted
// resource leaves its own tombstone. So whole trees are deleted, level by level.
//
//	r := reaper.New(server, nil)
//	go r.Run(ctx)
//
// # Safety
//
// A tombstone alone proves nothing: the deletion that wrote it may have failed. So the reaper first reads the owner with strong consistency, and does
// not delete its children while that incarnation is stored. A recreated owner has another uid and keeps its children. A child is deleted at the
// version that was read with this owner.
//
// # Lifetime of a tombstone
//
// A writer may be about to create a child of an owner that was just deleted. So a tombstone is kept until two checks, Options.Settle apart, have
// found no children. The service writes another one with a child whose owner it does not find, because it was deleted long ago or never existed.
// Only a child that the service begins to write before the deletion and ends after the tombstone stays: give writers a deadline shorter than Settle.
//
// Any number of reapers may run over one store. They duplicate work, but do no harm.
package reaper
