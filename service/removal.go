package service

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// deleteLeavingTombstone deletes a resource at the version that was read and writes its tombstone in the same transaction.
func (s *Server) deleteLeavingTombstone(ctx context.Context, res *resourcepb.Resource) (err error) {
	defer func() { mutationOf(ctx).Deleted = err == nil }()
	id, version := res.GetId(), res.GetVersion()
	if isTombstone(id.GetType()) {
		return s.deleteAt(ctx, id, version)
	}
	stone, err := newTombstone(id)
	if err != nil {
		return err
	}
	for {
		err := s.deleteWith(ctx, id, version, stone)
		if !errors.Is(err, errStoneConflict) {
			return err
		}
		stored, err := s.readCurrent(ctx, storage.StrongConsistency, idIn(stone.GetId().GetTenancy(), &resourcepb.ID{Name: stone.GetId().GetName(), Type: TombstoneType}))
		var damaged *storage.DamagedError
		switch {
		case errors.Is(err, storage.ErrNotFound):
			continue // the reaper has deleted it meanwhile
		case err != nil && !errors.As(err, &damaged):
			return err
		case isTombstoneOf(stored, id), stone.GetId().GetName() == orphanTombstone(id):
			return s.deleteAt(ctx, id, version)
		}
		stone.Id.Name = orphanTombstone(id) // the tombstone is of another resource with the same uid
	}
}

// deleteWith deletes a resource and writes its tombstone, in one transaction if the store has transactions.
func (s *Server) deleteWith(ctx context.Context, id *resourcepb.ID, version string, stone *resourcepb.Resource) error {
	if _, ok := storage.As[storage.Transactor](s.backend); !ok {
		// Write the tombstone first: a crash between the two writes must not leave children that are never deleted. If the deletion fails, the
		// tombstone remains for the next attempt; the reaper does not delete the children of an owner that is stored.
		if _, err := s.commit(ctx, storage.Op{Write: stone}); alreadyExists(err) {
			return errStoneConflict
		} else if err != nil {
			return err
		}
		return s.deleteAt(ctx, id, version)
	}
	_, err := s.commit(ctx, storage.Op{Delete: id, Version: version}, storage.Op{Write: stone})
	if failed := (*storage.OpError)(nil); errors.As(err, &failed) && failed.Index == 1 && alreadyExists(failed.Err) {
		return errStoneConflict
	}
	return err
}

// isTombstoneOf reports whether a tombstone, nil for none, is of the resource with an id.
func isTombstoneOf(stone *resourcepb.Resource, id *resourcepb.ID) bool {
	owner, err := Tombstone(stone)
	return err == nil && owner.GetUid() == id.GetUid() && compareKeys(owner, id) == 0
}
