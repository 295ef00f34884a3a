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
func (k *Keeper) repair(ctx context.Context, damaged *storage.DamagedError) error {
	typ := renewalType
	switch damaged.ID.GetType().GetKind() {
	case leaseType.Kind:
		typ = leaseType
	case renewalType.Kind:
	default:
		return damaged // it is no lease's
	}
	// What the watch has met may be older than what is stored.
	if _, err := k.readRecord(ctx, typ, damaged.ID.GetName()); !errors.As(err, &damaged) {
		return err
	}
	if typ == renewalType {
		return k.backend.DeleteCAS(ctx, damaged.ID, damaged.Version)
	}
	return k.replace(ctx, damaged)
}

// replace writes a record without a time to live over a damaged one, with the uid that attached resources name.
func (k *Keeper) replace(ctx context.Context, damaged *storage.DamagedError) error {
	res := &resourcepb.Resource{Id: k.id(leaseType, damaged.ID.GetName()), Version: damaged.Version, Generation: ulid.Make().String()}
	last, err := k.readRecord(ctx, renewalType, damaged.ID.GetName())
	if lost := (*storage.DamagedError)(nil); err != nil && !errors.Is(err, storage.ErrNotFound) && !errors.As(err, &lost) {
		return err
	}
	// Not every database tells the uid. If nothing does, as where the renewal is damaged too, a new one is better than a record that stays
	// damaged; a keeper that remembers the old one takes that lease for ended.
	res.Id.Uid = cmp.Or(damaged.ID.GetUid(), k.uid(damaged.ID.GetName()), renewedUid(last), ulid.Make().String())
	_, err = k.backend.WriteCAS(ctx, res)
	return err
}

// uid returns the uid of the lease of a name, as far as this keeper has seen, or "".
func (k *Keeper) uid(name string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if seen := k.leases[name]; seen != nil {
		return seen.uid
	}
	return ""
}
