package lease_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
)

func keeper(t testing.TB, b storage.Backend) *lease.Keeper {
	t.Helper()
	k, err := lease.NewKeeper(b, system)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

func grant(t testing.TB, k *lease.Keeper, name string, ttl time.Duration) *lease.Lease {
	t.Helper()
	l, err := k.Grant(fixture.Context(t), name, ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// attach attaches a resource to a lease.
func attach(ctx context.Context, b storage.Backend, l *lease.Lease, name string) error {
	res := fixture.Resource(name, "")
	res.Owner = l.Owner()
	_, err := b.(storage.Transactor).Commit(ctx, []storage.Op{l.Alive(), {Write: res}})
	return err
}

func missing(t testing.TB, b storage.Backend, name string) bool {
	t.Helper()
	_, err := b.Read(fixture.Context(t), storage.StrongConsistency, fixture.ID(name))
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		t.Fatal(err)
	}
	return err != nil
}

func TestLeaseEndDeletesAttached(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		k := keeper(t, b)
		defer k.Close()
		l := grant(t, k, "session", 10*time.Second)
		for _, name := range []string{"attached", "detached"} {
			if err := attach(t.Context(), b, l, name); err != nil {
				t.Fatal(err)
			}
		}
		detached := fixture.Stored(t, b, fixture.ID("detached"))
		detached.Owner = nil
		fixture.Write(t, b, detached)
		if _, err := k.Grant(t.Context(), "session", time.Second); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("a lease was granted twice: %v", err)
		}

		<-time.After(9 * time.Second)
		if rest, err := k.Remaining(t.Context(), "session"); err != nil || rest != time.Second {
			t.Errorf("Remaining: %v, %v, expected 1s", rest, err)
		}
		if ttl, err := k.Renew(t.Context(), "session"); err != nil || ttl != 10*time.Second {
			t.Errorf("Renew: %v, %v, expected 10s", ttl, err)
		}
		<-time.After(9900 * time.Millisecond)
		synctest.Wait()
		if missing(t, b, "attached") {
			t.Error("a lease ended early")
		}
		<-time.After(500 * time.Millisecond)
		synctest.Wait()
		if !missing(t, b, "attached") {
			t.Error("the attached resource outlived its lease")
		}
		if missing(t, b, "detached") {
			t.Error("the detached resource was deleted with the lease")
		}
		if err := attach(t.Context(), b, l, "late"); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("attach to an ended lease: %v, expected ErrCASFailure", err)
		}
		for what, err := range map[string]error{
			"renew":     second(k.Renew(t.Context(), "session")),
			"remaining": second(k.Remaining(t.Context(), "session")),
			"revoke":    k.Revoke(t.Context(), "session"),
			"lease":     second(k.Lease(t.Context(), "session")),
		} {
			if !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("%s of an ended lease: %v, expected ErrNotFound", what, err)
			}
		}
		all, err := b.List(t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: "lease", Kind: storage.Wildcard}, system, "")
		if err != nil || len(all) != 0 {
			t.Errorf("remaining records: %v, %v", all, err)
		}
	})
}

func second[T any](_ T, err error) error { return err }

func TestNewKeeperWaitsForTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		first := keeper(t, b)
		l := grant(t, first, "session", 10*time.Second)
		if err := attach(t.Context(), b, l, "attached"); err != nil {
			t.Fatal(err)
		}
		<-time.After(9 * time.Second)
		first.Close()
		<-time.After(time.Hour) // no keeper runs
		next := keeper(t, b)
		defer next.Close()
		<-time.After(9 * time.Second)
		synctest.Wait()
		if missing(t, b, "attached") {
			t.Error("a keeper ended a lease that it had observed for less than the time to live")
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if !missing(t, b, "attached") {
			t.Error("the lease did not end")
		}
	})
}

// stuckReferences is a backend whose OwnerReferences call blocks, so its keeper never deletes attached resources.
type stuckReferences struct {
	storage.Backend
	storage.Transactor
	callCh chan struct{}
	once   sync.Once
}

func (h *stuckReferences) OwnerReferences(ctx context.Context, _ *resourcepb.ID) ([]*resourcepb.ID, error) {
	h.once.Do(func() { close(h.callCh) })
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestKeeperCompletesInterruptedEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		h := &stuckReferences{Backend: b, Transactor: b.(storage.Transactor), callCh: make(chan struct{})}
		first := keeper(t, h)
		l := grant(t, first, "session", time.Second)
		if err := attach(t.Context(), b, l, "attached"); err != nil {
			t.Fatal(err)
		}
		<-h.callCh
		first.Close()
		if missing(t, b, "attached") {
			t.Fatal("the first keeper deleted the attached resource")
		}
		if err := attach(t.Context(), b, l, "late"); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("attach to a lease that has begun to end: %v, expected ErrCASFailure", err)
		}
		next := keeper(t, b)
		defer next.Close()
		<-time.After(time.Second / 2)
		synctest.Wait()
		if !missing(t, b, "attached") {
			t.Error("the attached resource was not deleted")
		}
	})
}

// noOrphans attaches resources to leases while they end and renews some. Every resource attached to an ended lease must be deleted.
func noOrphans(t *testing.T, handles ...storage.Backend) {
	t.Helper()
	ctx := fixture.Context(t)
	var keepers []*lease.Keeper
	for _, b := range handles {
		keepers = append(keepers, keeper(t, b))
	}
	const leases, attachers = 4, 3
	var all sync.WaitGroup
	for n := range leases {
		l := grant(t, keepers[0], fmt.Sprint("lease", n), time.Second)
		for a := range attachers {
			all.Go(func() {
				b := handles[a%len(handles)]
				for i := 0; ; i++ {
					err := attach(ctx, b, l, fmt.Sprintf("%d-%d-%d", n, a, i))
					if errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrWrongUid) || errors.Is(err, storage.ErrNotFound) {
						return
					}
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		if n%2 == 0 {
			all.Go(func() {
				if err := keepers[len(keepers)-1].Revoke(ctx, fmt.Sprint("lease", n)); err != nil && !errors.Is(err, storage.ErrNotFound) {
					t.Error(err)
				}
			})
		}
	}
	all.Wait()
	fixture.Eventually(t, "all leases and attached resources are deleted", func() bool {
		remaining, err := handles[0].List(ctx, storage.StrongConsistency, storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard},
			&resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}, "")
		if err != nil {
			t.Fatal(err)
		}
		// The record of a lease is deleted last, so a resource without it is an orphan forever.
		alive := map[string]bool{}
		for _, res := range remaining {
			alive[res.GetId().GetUid()] = res.GetId().GetType().GetKind() == "Lease"
		}
		for _, res := range remaining {
			if owner := res.GetOwner(); owner != nil && !alive[owner.GetUid()] {
				t.Fatalf("%v outlived its lease", res.GetId())
			}
		}
		return len(remaining) == 0
	})
	if err := second(keepers[0].Renew(ctx, "lease0")); !errors.Is(err, storage.ErrNotFound) {
		t.Error(err)
	}
}

func TestNoOrphansInMemory(t *testing.T) {
	t.Parallel()
	noOrphans(t, fixture.Open(t, "mem://"))
}

func TestNoOrphansOnSQLite(t *testing.T) {
	t.Parallel()
	noOrphans(t, openTwice(t, "sqlite:"+filepath.Join(t.TempDir(), "store.db"))...)
}

func TestGrantNeedsPositiveTTL(t *testing.T) {
	t.Parallel()
	k := keeper(t, fixture.Open(t, "mem://"))
	for _, ttl := range []time.Duration{0, -time.Second} {
		if _, err := k.Grant(t.Context(), "session", ttl); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("%v: %v", ttl, err)
		}
	}
	if names, err := k.Names(t.Context()); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	l := grant(t, k, "session", time.Hour)
	if names, err := k.Names(t.Context()); err != nil || len(names) != 1 || names[0] != "session" {
		t.Errorf("%v, %v", names, err)
	}
	got, err := k.Lease(t.Context(), "session")
	if err != nil || got.TTL != l.TTL || !proto.Equal(got.Owner(), l.Owner()) {
		t.Errorf("%v, %v", got, err)
	}
}
