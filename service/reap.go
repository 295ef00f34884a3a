package service

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Backend returns the backend that the server was made of.
func (s *Server) Backend() storage.Backend { return s.backend }

// Reap deletes a resource that is owned by a deleted one, as Delete does, for package reaper: the caller has proven that the owner's
// incarnation is gone. Neither registry nor hooks are asked, since types come and go while what they left stays. Nothing is done to a
// resource that is not there with the uid in id, or that has another owner by now.
func (s *Server) Reap(ctx context.Context, id, owner *resourcepb.ID) error {
	err := retryConflicts(ctx, false, func(consistency storage.ReadConsistency) error {
		res, err := s.readCurrent(ctx, consistency, id)
		switch {
		case errors.Is(err, storage.ErrNotFound):
			return decisionError{err}
		case err != nil:
			return err
		case res.GetOwner().GetUid() != owner.GetUid() || compareKeys(res.GetOwner(), owner) != 0:
			return decisionError{storage.ErrNotFound} // this owner has it no more
		}
		return s.deleteNow(ctx, res)
	})
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, errDeferred) {
		return nil
	}
	return err
}
