package lease_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Attached resources are deleted even if the lease's records were deleted by another program, with or without a running keeper.
func TestDeletedLeaseLeavesNoOrphans(t *testing.T) {
	for name, tc := range map[string]struct {
		kinds    []string
		noKeeper bool // no keeper runs during the deletion
	}{
		"lease":             {kinds: []string{"Lease"}},
		"lease, no keeper":  {kinds: []string{"Lease"}, noKeeper: true},
		"lease and renewal": {kinds: []string{"Lease", "Renewal"}},
		"renewal and lease": {kinds: []string{"Renewal", "Lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b storage.Backend) {
				k := keeper(t, b)
				if err := attach(t.Context(), b, grant(t, k, "session", time.Hour), "attached"); err != nil {
					t.Fatal(err)
				}
				fixture.Write(t, b, fixture.Resource("free", ""))
				synctest.Wait()
				if tc.noKeeper {
					k.Close()
				}
				for _, kind := range tc.kinds {
					remove(t, b, "lease", kind)
				}
				if tc.noKeeper {
					k = keeper(t, b)
				}
				defer k.Close()
				<-time.After(5 * time.Second)
				synctest.Wait()
				if !missing(t, b, "attached") || missing(t, b, "free") {
					t.Error("the attached resource was not deleted, or the free one was")
				}
				remaining, err := b.List(t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: "lease", Kind: storage.Wildcard}, system, "")
				if err != nil || len(remaining) != 0 {
					t.Errorf("remaining records: %v, %v", remaining, err)
				}
			})
		})
	}
}

// A lease is granted again before its deletion was noticed. It neither inherits nor loses resources.
func TestDeletedLeaseGrantedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		k := keeper(t, b)
		defer k.Close()
		if err := attach(t.Context(), b, grant(t, k, "session", time.Hour), "old"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		remove(t, b, "lease", "Lease")
		remove(t, b, "lease", "Renewal")
		if err := attach(t.Context(), b, grant(t, k, "session", time.Hour), "new"); err != nil {
			t.Fatal(err)
		}
		<-time.After(5 * time.Second)
		synctest.Wait()
		if !missing(t, b, "old") || missing(t, b, "new") {
			t.Errorf("old resource deleted: %v, new resource deleted: %v", missing(t, b, "old"), missing(t, b, "new"))
		}
		only(t, b, "lease", "Lease")
		only(t, b, "lease", "Renewal")
	})
}

// delayedLeases is a backend whose watches delay lease records until now is closed.
type delayedLeases struct {
	storage.Backend
	storage.Transactor
	now chan struct{}
}

func (l *delayedLeases) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	w, err := l.Backend.WatchList(ctx, typ, tenancy, prefix)
	return &delayedWatch{w, l.now, nil}, err
}

type delayedWatch struct {
	storage.Watch
	now  chan struct{}
	held []*resourcepb.WatchEvent
}

func (w *delayedWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	for {
		select {
		case <-w.now:
			if len(w.held) > 0 {
				ev := w.held[0]
				w.held = w.held[1:]
				return ev, nil
			}
		default:
		}
		ev, err := w.Watch.Next(ctx)
		if err != nil || ev.GetUpsert().GetResource().GetId().GetType().GetKind() != "Lease" {
			return ev, err
		}
		w.held = append(w.held, ev)
	}
}

// A lease may exist although only its renewal was observed.
func TestLeaseObservedAfterItsRenewal(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		behind := &delayedLeases{b, b.(storage.Transactor), make(chan struct{})}
		k := keeper(t, behind)
		defer k.Close()
		if err := attach(t.Context(), b, grant(t, k, "session", 10*time.Second), "attached"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		close(behind.now)
		if missing(t, b, "attached") {
			t.Fatal("the attached resource was deleted although its lease exists")
		}
		if _, err := k.Renew(t.Context(), "session"); err != nil {
			t.Error(err)
		}
		<-time.After(9 * time.Second)
		synctest.Wait()
		if missing(t, b, "attached") {
			t.Error("a lease ended early")
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if !missing(t, b, "attached") {
			t.Error("the attached resource outlived its lease")
		}
	})
}

// rewrite changes the single resource of a kind, like a program of another version.
func rewrite(t *testing.T, b storage.Backend, kind string, change func(*resourcepb.Resource)) {
	t.Helper()
	res := proto.CloneOf(only(t, b, "lease", kind))
	change(res)
	if _, err := b.WriteCAS(t.Context(), res); err != nil {
		t.Fatal(err)
	}
}

func setNewerVersion(res *resourcepb.Resource) { res.Id.Type.GroupVersion = "v2" }

func setUnknownPayload(res *resourcepb.Resource) {
	res.Data = &anypb.Any{TypeUrl: "type.example/unknown", Value: []byte{1}}
}

// A renewal counts, whichever version of the package wrote it.
func TestRenewalOfOtherVersion(t *testing.T) {
	inBubble(t, func(t *testing.T, b storage.Backend) {
		k := keeper(t, b)
		defer k.Close()
		for _, ends := range []func() error{
			func() error { <-time.After(11 * time.Second); return nil },
			func() error { return k.Revoke(t.Context(), "session") },
		} {
			if err := attach(t.Context(), b, grant(t, k, "session", 10*time.Second), "attached"); err != nil {
				t.Fatal(err)
			}
			<-time.After(9 * time.Second)
			rewrite(t, b, "Renewal", setNewerVersion)
			<-time.After(9 * time.Second)
			synctest.Wait()
			if missing(t, b, "attached") {
				t.Error("a lease ended early")
			}
			if _, err := k.Renew(t.Context(), "session"); err != nil {
				t.Error(err)
			}
			rewrite(t, b, "Renewal", setNewerVersion)
			if err := ends(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if !missing(t, b, "attached") {
				t.Error("the attached resource outlived its lease")
			}
		}
	})
}

// A lease whose record cannot be read does not expire, does not hide other leases, and can be revoked.
func TestUnreadableLease(t *testing.T) {
	for name, change := range map[string]func(*resourcepb.Resource){
		"unknown payload": setUnknownPayload,
		"newer version":   setNewerVersion,
		"no time to live": func(res *resourcepb.Resource) {
			data, err := anypb.New(&structpb.Struct{})
			if err != nil {
				t.Fatal(err)
			}
			res.Data = data
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b storage.Backend) {
				k := keeper(t, b)
				defer k.Close()
				if err := attach(t.Context(), b, grant(t, k, "session", 10*time.Second), "attached"); err != nil {
					t.Fatal(err)
				}
				rewrite(t, b, "Lease", change)
				grant(t, k, "other", time.Hour)
				<-time.After(time.Minute)
				synctest.Wait()
				if missing(t, b, "attached") {
					t.Error("a lease with an unknown time to live ended")
				}
				if names, err := k.Names(t.Context()); err != nil || !slices.Equal(names, []string{"other"}) {
					t.Errorf("%v, %v", names, err)
				}
				if _, err := k.Renew(t.Context(), "session"); err == nil || errors.Is(err, storage.ErrNotFound) {
					t.Errorf("Renew of an unreadable lease: %v", err)
				}
				if err := k.Revoke(t.Context(), "session"); err != nil {
					t.Error(err)
				}
				if !missing(t, b, "attached") {
					t.Error("the attached resource outlived its lease")
				}
				only(t, b, "lease", "Lease")
				only(t, b, "lease", "Renewal")
			})
		})
	}
}
