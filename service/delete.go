package service

import (
	"context"
	"errors"
	"time"

	"github.com/oklog/ulid/v2"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Delete removes a resource, and leaves a tombstone. What is not there, or has another uid than the one asked for, is gone already, which
// is success. A version that is not the stored one is Aborted. A resource with finalizers is marked for deletion instead, and deleted when
// its last finalizer is removed.
func (s *Server) Delete(ctx context.Context, req *resourcepb.DeleteRequest) (*resourcepb.DeleteResponse, error) {
	if err := checkID("id", req.GetId()); err != nil {
		return nil, err
	}
	t, err := s.resolve(req.GetId().GetType())
	if err != nil {
		return nil, err
	}
	if err := checkScope(t, req.GetId().GetType(), req.GetId().GetTenancy(), false); err != nil {
		return nil, err
	}
	tenancy := fillTenancy(t.Scope, req.GetId().GetTenancy())
	caller, err := s.caller(ctx, tenancy)
	if err != nil {
		return nil, err
	}
	id := idIn(tenancy, req.GetId())
	allowed := func(res *resourcepb.Resource) error { return s.authStatus(ctx, t.MayWrite(caller, res)) }
	err = retryConflicts(ctx, req.GetVersion() != "", func(consistency storage.ReadConsistency) error {
		return s.delete(ctx, consistency, id, req.GetVersion(), allowed)
	})
	if err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.Is(err, errDeferred) {
		return nil, s.toStatus(ctx, "delete", err)
	}
	return &resourcepb.DeleteResponse{}, nil
}

// errDeferred says that a resource is marked for deletion already, and waits for its finalizers.
var errDeferred = errors.New("the deletion is deferred")

// delete reads what is stored, and deletes or marks it. Its error is ErrNotFound if nothing is stored.
func (s *Server) delete(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID, version string, allowed func(*resourcepb.Resource) error) error {
	res, err := s.readCurrent(ctx, consistency, id)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		if err := allowed(&resourcepb.Resource{Id: id}); err != nil {
			return err // who may not delete it does not learn that it is gone
		}
		return decisionError{storage.ErrNotFound}
	case err != nil:
		return err
	}
	if err := allowed(res); err != nil {
		return err
	}
	if version != "" && version != res.GetVersion() {
		return decisionError{storage.ErrCASFailure}
	}
	return s.deleteNow(ctx, res)
}

// deleteNow deletes a resource at the version that was read, or marks it if it has finalizers.
func (s *Server) deleteNow(ctx context.Context, res *resourcepb.Resource) error {
	switch {
	case len(finalizersOf(res)) == 0:
		return s.deleteLeavingTombstone(ctx, res)
	case hasDeletionMark(res):
		return decisionError{errDeferred}
	}
	return s.mark(ctx, res)
}

// mark marks a resource for deletion. The hooks of its type are not asked: what they refuse can be deleted.
func (s *Server) mark(ctx context.Context, res *resourcepb.Resource) error {
	res = proto.CloneOf(res)
	if res.Metadata == nil {
		res.Metadata = map[string]string{}
	}
	res.Metadata[deletionTimestampKey] = time.Now().UTC().Format(time.RFC3339)
	res.Generation = ulid.Make().String()
	_, err := s.store(ctx, res)
	return err
}
