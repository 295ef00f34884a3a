package lease_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
)

// standing is a backend whose keeper stands still between the last look at what is attached to a lease and the deletion of its record.
type standing struct {
	storage.Backend
	storage.Transactor
	stood     atomic.Bool
	meanwhile func()
}

func (f *standing) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	left, err := f.Backend.OwnerReferences(ctx, id)
	if err == nil && len(left) == 0 && f.stood.CompareAndSwap(false, true) {
		f.meanwhile()
	}
	return left, err
}

func TestAFrozenKeeperLeavesTheNextLeaseAlone(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		again := make(chan struct{})
		f := &standing{Backend: b, Transactor: b.(storage.Transactor), meanwhile: func() {
			other := keeper(t, b)
			defer other.Close()
			for { // until the other keeper has ended the lease
				_, err := other.Grant(t.Context(), "session", time.Hour)
				if err == nil {
					break
				}
				if !errors.Is(err, storage.ErrCASFailure) {
					t.Error(err)
					break
				}
				<-time.After(time.Second)
			}
			close(again)
		}}
		first := keeper(t, f)
		defer first.Close()
		grant(t, first, "session", time.Second)
		if err := first.Revoke(t.Context(), "session"); err != nil {
			t.Error(err)
		}
		<-again
		<-time.After(time.Minute)
		synctest.Wait()
		only(t, b, "lease", "Lease")
		only(t, b, "lease", "Renewal")
	})
}

// crossed is a backend whose watches keep the order of each key only: a lease's record comes after the renewal that was written with it,
// or after it.
type crossed struct {
	storage.Backend
	storage.Transactor
}

func (c *crossed) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	w, err := c.Backend.WatchList(ctx, typ, tenancy, prefix)
	return &crossedWatch{Watch: w}, err
}

type crossedWatch struct {
	storage.Watch
	held, ready []*resourcepb.WatchEvent
}

func (w *crossedWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	if len(w.ready) > 0 {
		ev := w.ready[0]
		w.ready = w.ready[1:]
		return ev, nil
	}
	for {
		ev, err := w.Watch.Next(ctx)
		switch {
		case err != nil:
			return nil, err
		case ev.GetDelete().GetResource().GetId().GetType().GetKind() == "Lease",
			len(w.held) > 0 && ev.GetUpsert().GetResource().GetId().GetType().GetKind() == "Lease":
			w.held = append(w.held, ev)
			continue
		case ev.GetUpsert().GetResource().GetId().GetType().GetKind() == "Renewal":
			w.ready, w.held = w.held, nil
		}
		return ev, nil
	}
}

func TestALeaseEndsWhoseEventsAreCrossed(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		k := keeper(t, &crossed{b, b.(storage.Transactor)})
		defer k.Close()
		grant(t, k, "session", time.Hour)
		if err := k.Revoke(t.Context(), "session"); err != nil {
			t.Fatal(err)
		}
		if err := attach(t.Context(), b, grant(t, k, "session", 10*time.Second), "attached"); err != nil {
			t.Fatal(err)
		}
		<-time.After(11 * time.Second)
		synctest.Wait()
		if !missing(t, b, "attached") {
			t.Error("what was attached outlives its lease")
		}
	})
}

func TestAClosedKeeperRevokesNothingForEver(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		k := keeper(t, b)
		grant(t, k, "session", time.Hour)
		k.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := k.Revoke(ctx, "session"); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("a closed keeper revokes: %v", err)
		}
	})
}

func TestAKeeperKeepsOneTenancy(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		for _, tenancy := range []*resourcepb.Tenancy{
			nil, {Partition: storage.Wildcard, Namespace: "n"}, {Partition: "p", Namespace: storage.Wildcard},
		} {
			k, err := lease.NewKeeper(b, tenancy)
			if !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("a keeper of %v: %v", tenancy, err)
			}
			if k != nil {
				k.Close()
			}
		}
	})
}
