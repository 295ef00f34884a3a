package lease

import (
	"context"
	"errors"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// observe follows leases and their renewals until ctx is over or the backend is closed.
func (k *Keeper) observe(ctx context.Context) {
	defer close(k.watchEndCh)
	for ctx.Err() == nil {
		w, err := k.backend.WatchList(ctx, storage.UnversionedType{Group: leaseType.Group, Kind: storage.Wildcard}, k.tenancy, "")
		if err == nil {
			err = k.follow(ctx, w)
			w.Close()
		}
		if errors.Is(err, storage.ErrClosed) {
			return
		}
		wait(ctx, retryPause)
		if damaged := (*storage.DamagedError)(nil); errors.As(err, &damaged) {
			_ = k.repair(ctx, damaged) // the next watch shows whether there is more to do
		}
	}
}

// follow takes in what a watch returns, until that ends. What a watch from a snapshot does not mention any more is forgotten.
func (k *Keeper) follow(ctx context.Context, w storage.Watch) error {
	type part struct{ kind, name string }
	listed := map[part]bool{}
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			return err
		}
		k.mu.Lock()
		switch {
		case ev.GetEndOfSnapshot() != nil:
			for name := range k.leases {
				for _, typ := range []*resourcepb.Type{leaseType, renewalType} {
					if !listed[part{typ.GetKind(), name}] {
						k.observeDeletion(typ.GetKind(), name)
					}
				}
			}
			listed = nil
		case ev.GetDelete() != nil:
			id := ev.GetDelete().GetResource().GetId()
			k.observeDeletion(id.GetType().GetKind(), id.GetName())
		case ev.GetUpsert() != nil:
			res := ev.GetUpsert().GetResource()
			if listed != nil {
				listed[part{res.GetId().GetType().GetKind(), res.GetId().GetName()}] = true
			}
			k.observeWrite(res)
		}
		k.announce()
		k.mu.Unlock()
	}
}

// observeWrite takes in a lease or a renewal that was written. What is neither of them is not a keeper's.
func (k *Keeper) observeWrite(res *resourcepb.Resource) {
	if kind := res.GetId().GetType().GetKind(); kind != leaseType.Kind && kind != renewalType.Kind {
		return
	}
	name := res.GetId().GetName()
	seen := k.leases[name]
	if seen == nil {
		seen = &leaseState{}
		k.leases[name] = seen
	}
	switch res.GetId().GetType().GetKind() {
	case leaseType.Kind:
		if seen.lease == nil && seen.renewal == "" {
			seen.since = time.Now() // its renewal comes with it, unless somebody deleted that
		}
		// One that does not decode is left alone: nobody knows for how long it was to live.
		k.observeReplacement(name, seen, res.GetId().GetUid())
		seen.lease, _ = leaseOf(res)
	case renewalType.Kind:
		if seen.renewal != res.GetVersion() {
			seen.renewal, seen.renewedUid, seen.since = res.GetVersion(), renewedUid(res), time.Now()
		}
	}
}

// observeDeletion takes in that a lease or a renewal is not stored any more. Each goes alone: on some databases the renewal of a new lease is seen
// before the end of the old one of that name.
func (k *Keeper) observeDeletion(kind, name string) {
	seen := k.leases[name]
	switch {
	case seen == nil:
		return
	case kind == leaseType.Kind:
		k.observeReplacement(name, seen, "")
		seen.lease = nil
	case kind == renewalType.Kind && seen.renewal != "":
		seen.renewal, seen.since = "", time.Now()
	}
	if seen.uid == "" && seen.renewal == "" {
		delete(k.leases, name)
	}
}

// hasSeen reports whether the keeper's watch hasSeen returned a version of a lease's record; it also returns what is closed when the watch returns more.
func (k *Keeper) hasSeen(name, version string) (bool, <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	seen := k.leases[name]
	return seen != nil && seen.lease != nil && seen.lease.res.GetVersion() == version, k.changeCh
}

// expiring is a lease that nobody has renewed for its time to live, or whose end has begun, or whose record was deleted.
type expiring struct {
	leaseName
	lease   *Lease // nil if its record was deleted
	renewal string
}

// due returns the leases to end, marks them as ending, and returns when the next one may be due.
func (k *Keeper) due(now time.Time) (all []expiring, next time.Duration, changed <-chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	next = time.Hour
	for name, seen := range k.leases {
		switch {
		case seen.uid == "":
			k.noteOrphans(leaseName{name, seen.renewedUid}) // there is only a renewal
		case seen.lease == nil || seen.ending:
		case seen.lease.hasEnded:
			seen.ending = true
			all = append(all, expiring{leaseName{name, seen.uid}, seen.lease, ""})
		default:
			left := seen.since.Add(seen.lease.TTL).Sub(now)
			if left > 0 {
				next = min(next, left)
				continue
			}
			if k.extensions[name] > 0 {
				continue // its holder came in time, or what comes of it shows that it did not
			}
			seen.ending = true
			all = append(all, expiring{leaseName{name, seen.uid}, seen.lease, seen.renewal})
		}
	}
	return k.dueOrphans(now, all, next)
}

// retryEnding has another try made at a lease that did not end.
func (k *Keeper) retryEnding(d expiring, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch seen := k.leases[d.name]; {
	case d.lease == nil:
		k.finishSweep(d.leaseName, err)
	case seen != nil:
		seen.ending = false
	}
	k.announce()
}
