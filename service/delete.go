package service

import (
	"context"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// Delete deletes a resource and leaves a tombstone. It succeeds if nothing is stored under the key, or a resource with another uid than the
// requested one. It fails with Aborted if the stored version is not the given one. A resource with finalizers is marked for deletion
// instead; it is deleted when its last finalizer is removed.
func (s *Server) Delete(ctx context.Context, req *resourcepb.DeleteRequest) (_ *resourcepb.DeleteResponse, err error) {
	ctx, audited := s.audit(ctx, "Delete", req.GetId())
	defer audited(&err)
	irregular := checkID("id", req.GetId())
	if irregular != nil && req.GetId().GetType() == nil {
		return nil, irregular
	}
	in, err := s.admit(ctx, req.GetId())
	if err != nil {
		return nil, unlessStored(irregular, err)
	}
	err = retryConflicts(ctx, req.GetVersion() != "", func(consistency storage.ReadConsistency) error {
		return s.delete(ctx, consistency, in, req.GetVersion())
	})
	if err != nil && (irregular != nil || !errors.Is(err, storage.ErrNotFound)) && !errors.Is(err, errDeferred) {
		return nil, unlessStored(irregular, s.toStatus(ctx, "delete", err))
	}
	return &resourcepb.DeleteResponse{}, nil
}

// errDeferred reports that a resource already has a deletion mark and still has finalizers.
var errDeferred = errors.New("the deletion is deferred")

// delete reads the stored resource, then deletes or marks it. It returns ErrNotFound if nothing is stored.
func (s *Server) delete(ctx context.Context, consistency storage.ReadConsistency, in *admission, version string) error {
	res, err := s.readCurrent(ctx, consistency, in.id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		if err := s.authStatus(ctx, in.t.MayWrite(in.caller, &resourcepb.Resource{Id: in.id})); err != nil {
			return err // a caller that may not delete the resource does not learn that it is absent
		}
		return decisionError{storage.ErrNotFound}
	case err != nil:
		return err
	}
	mutationOf(ctx).Before = res
	if err := s.authStatus(ctx, in.t.MayWrite(in.caller, res)); err != nil {
		return err
	}
	if version != "" && version != res.GetVersion() {
		return decisionError{storage.ErrCASFailure}
	}
	return s.deleteNow(ctx, res, in.caller)
}

// deleteNow deletes a resource at the version that was read, or marks it if it has finalizers. The caller is nil for the reaper and after the time to live.
func (s *Server) deleteNow(ctx context.Context, res *resourcepb.Resource, caller registry.Caller) error {
	switch {
	case len(finalizersOf(res)) == 0:
		return s.deleteLeavingTombstone(ctx, res)
	case hasDeletionMark(res):
		return decisionError{errDeferred}
	}
	return s.mark(ctx, res, caller)
}

// mark marks a resource for deletion. It does not call the hooks of the type: a resource that they reject can still be deleted.
func (s *Server) mark(ctx context.Context, res *resourcepb.Resource, caller registry.Caller) error {
	res = proto.CloneOf(res)
	if res.Metadata == nil {
		res.Metadata = map[string]string{}
	}
	res.Metadata[deletionTimestampKey] = time.Now().UTC().Format(time.RFC3339)
	res.Generation = ulid.Make().String()
	res.Author = s.author(caller)
	res.Ttl = nil // the deletion has begun
	_, err := s.store(ctx, res)
	return err
}
