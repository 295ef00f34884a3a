package service

import (
	"cmp"
	"context"
	"errors"

	"github.com/oklog/ulid/v2"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// isAbsent reports whether the incarnation that an owner names is proven not to be stored: it was deleted, or never existed.
func (s *Server) isAbsent(ctx context.Context, owner *resourcepb.ID) (bool, error) {
	_, err := s.readCurrent(ctx, storage.StrongConsistency, idIn(cmp.Or(owner.GetTenancy(), &resourcepb.Tenancy{}), owner))
	var damaged *storage.DamagedError
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return true, nil
	case errors.As(err, &damaged), errors.Is(err, storage.ErrInvalid): // the write of the child reports an invalid owner
		return false, nil
	}
	return false, err
}

// storeOrphan creates a resource whose owner is absent. In the same transaction it writes a tombstone of the owner, so that the reaper deletes the
// resource: an earlier tombstone may be gone. A stored tombstone gets another version, because a reaper that has found no children deletes only
// the version that it read. A conflict at the tombstone is none at the resource: another write of the tombstone has succeeded, so it tries again.
func (s *Server) storeOrphan(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if err := checkSize(res); err != nil {
		return nil, err
	}
	for {
		stone, err := s.orphanStone(ctx, res.GetOwner(), res.GetId().GetTenancy())
		if err != nil {
			return nil, err
		}
		stored, err := s.storeWith(ctx, stone, res)
		if !errors.Is(err, errStoneConflict) {
			return stored, err
		}
	}
}

// orphanStone returns the tombstone to write for an absent owner: a new tombstone, or the stored tombstone with a new generation. It is in the tenancy
// of the child: the tenancy of the owner may not exist, and the caller may have no permission to write there.
func (s *Server) orphanStone(ctx context.Context, owner *resourcepb.ID, tenancy *resourcepb.Tenancy) (*resourcepb.Resource, error) {
	stone, err := newTombstone(owner)
	if err != nil {
		return nil, err
	}
	stone.Id.Name, stone.Id.Tenancy = orphanTombstone(owner), tenancy
	stored, err := s.readCurrent(ctx, storage.StrongConsistency, idIn(stone.GetId().GetTenancy(), &resourcepb.ID{Name: stone.GetId().GetName(), Type: TombstoneType}))
	switch {
	case err == nil:
		stone = copyOf(stored)
		stone.Generation = ulid.Make().String()
	case !errors.Is(err, storage.ErrNotFound):
		return nil, err
	}
	return stone, nil
}

// storeWith writes a tombstone and creates a resource, in one transaction if the store has transactions.
func (s *Server) storeWith(ctx context.Context, stone, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if _, ok := storage.As[storage.Transactor](s.backend); !ok {
		if _, err := s.commit(ctx, storage.Op{Write: stone}); alreadyExists(err) {
			return nil, errStoneConflict
		} else if err != nil {
			return nil, err
		}
		return s.store(ctx, res)
	}
	written, err := s.commit(ctx, storage.Op{Write: stone}, storage.Op{Write: res})
	if failed := (*storage.OpError)(nil); errors.As(err, &failed) && failed.Index == 0 && alreadyExists(failed.Err) {
		return nil, errStoneConflict
	}
	if err != nil {
		return nil, conflictOf(err)
	}
	mutationOf(ctx).After = written[1]
	return written[1], nil
}

// conflictOf returns ErrCASFailure for a creation that failed because the resource exists, and other errors unchanged.
func conflictOf(err error) error {
	if alreadyExists(err) && !errors.Is(err, storage.ErrInconsistent) {
		return storage.ErrCASFailure
	}
	return err
}
