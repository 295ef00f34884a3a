package lease

import (
	"cmp"
	"context"
	"errors"

	"github.com/oklog/ulid/v2"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// repair removes a damaged record that makes a watch of the leases fail. No keeper observes any lease while such a record is stored. No lease ends
// by a repair. A damaged lease record has lost its time to live; its replacement has none, so the lease ends when it is revoked. A damaged renewal
// is deleted, and the time to live starts again.
func (s *leaseStore) repair(ctx context.Context, damaged *storage.DamagedError, knownUid func(name string) string) error {
	typ := renewalType
	switch damaged.ID.GetType().GetKind() {
	case leaseType.Kind:
		typ = leaseType
	case renewalType.Kind:
	default:
		return damaged // the record does not belong to a lease
	}
	// The watch may have failed at an older version than the stored one.
	if _, err := s.readRecord(ctx, typ, damaged.ID.GetName()); !errors.As(err, &damaged) {
		return err
	}
	if typ == renewalType {
		return s.backend.DeleteCAS(ctx, damaged.ID, damaged.Version)
	}
	return s.replace(ctx, damaged, knownUid(damaged.ID.GetName()))
}

// replace overwrites a damaged record with one that has no time to live and the uid that attached resources name.
func (s *leaseStore) replace(ctx context.Context, damaged *storage.DamagedError, knownUid string) error {
	res := &resourcepb.Resource{Id: s.id(leaseType, damaged.ID.GetName()), Version: damaged.Version, Generation: ulid.Make().String()}
	last, err := s.readRecord(ctx, renewalType, damaged.ID.GetName())
	if lost := (*storage.DamagedError)(nil); err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.As(err, &lost) {
		return err
	}
	// Not every database reports the uid. If every source is missing, for example because the renewal is damaged too, a new uid is better than a
	// damaged record. A keeper that knows the old uid then treats that lease as ended.
	res.Id.Uid = cmp.Or(damaged.ID.GetUid(), knownUid, renewedUid(last), ulid.Make().String())
	_, err = s.backend.WriteCAS(ctx, res)
	return err
}
