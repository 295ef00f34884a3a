package controller

import (
	"context"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// SetStatus replaces the conditions under a key, usually the name of the controller. The generation of o is the observed one. It writes nothing if
// the cached status has the same conditions and generation.
func (k Kind[T]) SetStatus(ctx context.Context, rt Runtime, o *typed.Object[T], key string, conditions ...*resourcepb.Condition) error {
	status := &resourcepb.Status{ObservedGeneration: o.Generation, Conditions: conditions}
	current, err := k.Get(rt, o.ID)
	if err != nil {
		return err
	}
	req := &resourcepb.WriteStatusRequest{Id: o.ID, Key: key, Status: status}
	if current != nil {
		written := proto.CloneOf(current.Status[key])
		if written != nil {
			written.UpdatedAt = nil
		}
		if proto.Equal(written, status) {
			return nil
		}
		if rt.versionedStatus { // several processes write this status: a slow one must not replace a newer one
			req.Version = current.Version
		}
	}
	_, err = rt.Client.WriteStatus(ctx, req)
	return err
}

// True returns a condition that holds.
func True(condition, reason string) *resourcepb.Condition {
	return &resourcepb.Condition{Type: condition, State: resourcepb.Condition_STATE_TRUE, Reason: reason}
}

// False returns a condition that does not hold.
func False(condition, reason string) *resourcepb.Condition {
	return &resourcepb.Condition{Type: condition, State: resourcepb.Condition_STATE_FALSE, Reason: reason}
}

// Deleting reports whether an object is marked for deletion: it has finalizers, and is deleted when the last one is removed.
func Deleting[T any](o *typed.Object[T]) bool { return hasDeletionMark(o.Metadata) }
