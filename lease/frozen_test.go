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

// pausing is a backend whose keeper pauses once between the last OwnerReferences call for a lease and the deletion of its record.
type pausing struct {
	storage.Backend
	storage.Transactor
	hasPaused atomic.Bool
	meanwhile func()
}

func (f *pausing) OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error) {
	remaining, err := f.Backend.OwnerReferences(ctx, id)
	if err == nil && len(remaining) == 0 && f.hasPaused.CompareAndSwap(false, true) {
		f.meanwhile()
	}
	return remaining, err
}

func TestFrozenKeeperDoesNotDeleteNextLease(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		again := make(chan struct{})
		f := &pausing{Backend: b, Transactor: b.(storage.Transactor), meanwhile: func() {
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

// reordering is a backend whose watches keep only the order of each key: the record of a lease arrives after the renewal of the same, or of a
// later, transaction.
type reordering struct {
	storage.Backend
	storage.Transactor
}

func (c *reordering) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	w, err := c.Backend.WatchList(ctx, typ, tenancy, prefix)
	return &reorderingWatch{Watch: w}, err
}

type reorderingWatch struct {
	storage.Watch
	held, ready []*resourcepb.WatchEvent
}

func (w *reorderingWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
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

func TestLeaseEndsDespiteReorderedEvents(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		k := keeper(t, &reordering{b, b.(storage.Transactor)})
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
			t.Error("the attached resource outlived its lease")
		}
	})
}

func TestRevokeAfterClose(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		k := keeper(t, b)
		grant(t, k, "session", time.Hour)
		k.Close()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := k.Revoke(ctx, "session"); !errors.Is(err, storage.ErrClosed) {
			t.Errorf("Revoke of a closed keeper: %v, expected ErrClosed", err)
		}
	})
}

func TestKeeperNeedsOneTenancy(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		for _, tenancy := range []*resourcepb.Tenancy{
			nil, {Partition: storage.Wildcard, Namespace: "n"}, {Partition: "p", Namespace: storage.Wildcard},
		} {
			k, err := lease.NewKeeper(b, tenancy)
			if !errors.Is(err, storage.ErrInvalid) {
				t.Errorf("a keeper of tenancy %v: %v, expected ErrInvalid", tenancy, err)
			}
			if k != nil {
				k.Close()
			}
		}
	})
}
