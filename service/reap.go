package service

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Backend returns the backend of the server.
func (s *Server) Backend() storage.Backend { return s.backend }

// Reap deletes a resource whose owner was deleted, as Delete does. It is for package reaper: the caller has proven that the incarnation of the
// owner no longer exists. Reap uses neither the registry nor hooks, because resources outlive the registration of their types. It does nothing if
// the resource with the uid in id is not stored, or has another owner.
func (s *Server) Reap(ctx context.Context, id, owner *resourcepb.ID) (err error) {
	ctx, audited := s.audit(ctx, "Reap", id)
	defer audited(&err)
	return s.deleteIf(ctx, id, false, func(res *resourcepb.Resource) error {
		if res.GetOwner().GetUid() != owner.GetUid() || compareKeys(res.GetOwner(), owner) != 0 {
			return storage.ErrNotFound // it has another owner
		}
		return nil
	})
}

// deleteIf deletes a resource if decide returns no error for it. It does nothing if the resource is not stored, and marks it if it has finalizers.
// versioned is as in retryConflicts.
func (s *Server) deleteIf(ctx context.Context, id *resourcepb.ID, versioned bool, decide func(*resourcepb.Resource) error) error {
	err := retryConflicts(ctx, versioned, func(consistency storage.ReadConsistency) error {
		res, err := s.readCurrent(ctx, consistency, id)
		if errors.Is(err, storage.ErrNotFound) {
			return decisionError{err}
		}
		if err != nil {
			return err
		}
		if err := decide(res); err != nil {
			return decisionError{err}
		}
		mutationOf(ctx).Before = res
		return s.deleteNow(ctx, res, nil)
	})
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, errDeferred) {
		return nil
	}
	return err
}
