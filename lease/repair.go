package lease

import (
	"cmp"
	"context"
	"errors"

	"github.com/oklog/ulid/v2"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// repair has a watch of the leases be possible again that failed because the record of one is damaged: as long as that is stored, no keeper
// sees any lease. Nothing ends by it. Of a damaged record the time to live is lost: what takes its place cannot be read either, and its lease
// ends when it is revoked. A damaged renewal is deleted, and the time to live counts anew.
func (s *leaseStore) repair(ctx context.Context, damaged *storage.DamagedError, knownUid func(name string) string) error {
	typ := renewalType
	switch damaged.ID.GetType().GetKind() {
	case leaseType.Kind:
		typ = leaseType
	case renewalType.Kind:
	default:
		return damaged // it is no lease's
	}
	// What the watch has met may be older than what is stored.
	if _, err := s.readRecord(ctx, typ, damaged.ID.GetName()); !errors.As(err, &damaged) {
		return err
	}
	if typ == renewalType {
		return s.backend.DeleteCAS(ctx, damaged.ID, damaged.Version)
	}
	return s.replace(ctx, damaged, knownUid(damaged.ID.GetName()))
}

// replace writes a record without a time to live over a damaged one, with the uid that attached resources name.
func (s *leaseStore) replace(ctx context.Context, damaged *storage.DamagedError, knownUid string) error {
	res := &resourcepb.Resource{Id: s.id(leaseType, damaged.ID.GetName()), Version: damaged.Version, Generation: ulid.Make().String()}
	last, err := s.readRecord(ctx, renewalType, damaged.ID.GetName())
	if lost := (*storage.DamagedError)(nil); err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.As(err, &lost) {
		return err
	}
	// Not every database tells the uid. If nothing does, as where the renewal is damaged too, a new one is better than a record that stays
	// damaged; a keeper that remembers the old one takes that lease for ended.
	res.Id.Uid = cmp.Or(damaged.ID.GetUid(), knownUid, renewedUid(last), ulid.Make().String())
	_, err = s.backend.WriteCAS(ctx, res)
	return err
}
