package service

import (
	"context"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// Mutation is a finished call that changes a resource, or a refused one. Options.Audit receives it. Its messages must not be modified.
type Mutation struct {
	// Method is Write, WriteStatus, Delete, Reap or Expire.
	Method string
	// ID is the id of the request. Its tenancy is filled in if the request was well-formed.
	ID *resourcepb.ID
	// Caller is the caller as authenticated; nil for Reap and Expire, and if the call was refused before or by the authentication.
	Caller registry.Caller
	// Before is the resource that the call has read, nil if none was stored or the call was refused before.
	Before *resourcepb.Resource
	// After is the resource that the call has stored, nil if it deleted the resource or changed nothing.
	After *resourcepb.Resource
	// Deleted reports that the call has deleted Before.
	Deleted bool
	// Err is the status error of the call. The change of a call that failed with Unavailable, Canceled or DeadlineExceeded may have been made.
	Err error
}

type mutationKey struct{}

// mutationOf returns the record of the call of ctx, or a record that is not used.
func mutationOf(ctx context.Context) *Mutation {
	if m, ok := ctx.Value(mutationKey{}).(*Mutation); ok {
		return m
	}
	return new(Mutation)
}
