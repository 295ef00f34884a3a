package lease

import (
	"context"
	"errors"
	"time"

	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// leaseName is a lease: another one of the same name has another uid.
type leaseName struct{ name, uid string }

// orphan is what may be left of a lease that did not end, but whose record was deleted or replaced by somebody else than a keeper.
type orphan struct {
	since  time.Time
	ending bool // something here is about to sweep it
}

// orphanDelay is how long a renewal is seen without its lease before that counts as one that was deleted: some databases tell of the two one after
// the other.
const orphanDelay = time.Second

// observeReplacement takes in that the stored record of a lease is that of another uid, or "" for none.
func (k *Keeper) observeReplacement(name string, seen *leaseState, uid string) {
	if seen.uid != "" && seen.uid != uid && (seen.lease == nil || !seen.lease.hasEnded) {
		k.noteOrphans(leaseName{name, seen.uid})
	}
	seen.uid = uid
}

// noteOrphans takes in that something may be left of a lease without a record.
func (k *Keeper) noteOrphans(l leaseName) {
	if k.orphans[l] == nil {
		k.orphans[l] = &orphan{since: time.Now()}
	}
}

// dueOrphans adds those orphans to what is due that have waited for long enough.
func (k *Keeper) dueOrphans(now time.Time, all []expiring, next time.Duration) ([]expiring, time.Duration, <-chan struct{}) {
	for l, o := range k.orphans {
		switch left := o.since.Add(orphanDelay).Sub(now); {
		case o.ending:
		case left > 0:
			next = min(next, left)
		default:
			o.ending = true
			all = append(all, expiring{leaseName: l})
		}
	}
	return all, next, k.changeCh
}

// finishSweep takes in how a sweep went.
func (k *Keeper) finishSweep(l leaseName, err error) {
	if err == nil {
		delete(k.orphans, l)
	} else if o := k.orphans[l]; o != nil {
		o.since, o.ending = time.Now(), false
	}
}

// sweep deletes what was attached to a lease without a record, and its renewal. Nothing can be attached to it any more, and as the keeper's
// watch has gone past the record, whatever was attached is found.
func (k *Keeper) sweep(ctx context.Context, l leaseName) error {
	stored, err := k.readRecord(ctx, leaseType, l.name)
	switch {
	case err == nil && stored.GetId().GetUid() == l.uid:
		return nil // the watch is behind
	case err != nil && !errors.Is(err, storage.ErrNotFound):
		return err
	}
	lease := k.id(leaseType, l.name)
	if lease.Uid = l.uid; l.uid != "" {
		if err := k.deleteAttached(ctx, lease); err != nil {
			return err
		}
	}
	last, err := k.readRecord(ctx, renewalType, l.name)
	switch {
	case errors.Is(err, storage.ErrNotFound):
		return nil
	case err != nil:
		return err
	case renewedUid(last) != l.uid:
		return nil // it is another lease's
	}
	_, err = k.tx.Commit(ctx, []storage.Op{{Check: k.id(leaseType, l.name)}, {Delete: last.GetId(), Version: last.GetVersion()}})
	return err
}

// renewedUid returns the uid of the lease that a renewal is of, "" if it does not say.
func renewedUid(renewal *resourcepb.Resource) string {
	fields := &structpb.Struct{}
	if renewal.GetData().UnmarshalTo(fields) != nil {
		return ""
	}
	return fields.GetFields()[uidField].GetStringValue()
}
