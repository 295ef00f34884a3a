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

// What was attached to a lease goes with it, also where somebody deleted the lease's records, while a keeper looked or not.
func TestALeaseThatWasDeletedLeavesNothing(t *testing.T) {
	for name, tc := range map[string]struct {
		kinds []string
		blind bool // no keeper runs meanwhile
	}{
		"lease":             {kinds: []string{"Lease"}},
		"lease, unseen":     {kinds: []string{"Lease"}, blind: true},
		"lease and renewal": {kinds: []string{"Lease", "Renewal"}},
		"renewal and lease": {kinds: []string{"Renewal", "Lease"}},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b storage.Backend) {
				k := keeper(t, b)
				if err := attach(t.Context(), b, grant(t, k, "session", time.Hour), "attached"); err != nil {
					t.Fatal(err)
				}
				fixture.Write(t, b, fixture.Resource("free", ""))
				synctest.Wait()
				if tc.blind {
					k.Close()
				}
				for _, kind := range tc.kinds {
					remove(t, b, "lease", kind)
				}
				if tc.blind {
					k = keeper(t, b)
				}
				defer k.Close()
				<-time.After(5 * time.Second)
				synctest.Wait()
				if !missing(t, b, "attached") || missing(t, b, "free") {
					t.Error("what was attached to a lease that was deleted is left, or more is gone")
				}
				left, err := b.List(t.Context(), storage.StrongConsistency, storage.UnversionedType{Group: "lease", Kind: storage.Wildcard}, system, "")
				if err != nil || len(left) != 0 {
					t.Errorf("left of the lease: %v, %v", left, err)
				}
			})
		})
	}
}

// A lease of the same name that is made before a deleted one was noticed takes over nothing and loses nothing.
func TestALeaseThatWasDeletedAndMadeAgain(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
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
			t.Errorf("old is gone: %v, new is gone: %v", missing(t, b, "old"), missing(t, b, "new"))
		}
		only(t, b, "lease", "Lease")
		only(t, b, "lease", "Renewal")
	})
}

// late is a backend whose watches show no lease's record until they are told to.
type late struct {
	storage.Backend
	storage.Transactor
	now chan struct{}
}

func (l *late) WatchList(
	ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string,
) (storage.Watch, error) {
	w, err := l.Backend.WatchList(ctx, typ, tenancy, prefix)
	return &lateWatch{w, l.now, nil}, err
}

type lateWatch struct {
	storage.Watch
	now  chan struct{}
	held []*resourcepb.WatchEvent
}

func (w *lateWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
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

// A lease of which only the renewal was seen may be there all the same.
func TestALeaseThatIsSeenLate(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
		behind := &late{b, b.(storage.Transactor), make(chan struct{})}
		k := keeper(t, behind)
		defer k.Close()
		if err := attach(t.Context(), b, grant(t, k, "session", 10*time.Second), "attached"); err != nil {
			t.Fatal(err)
		}
		<-time.After(time.Minute)
		close(behind.now)
		if missing(t, b, "attached") {
			t.Fatal("what is attached to a lease was deleted because its record had not been seen")
		}
		if _, err := k.Renew(t.Context(), "session"); err != nil {
			t.Error(err)
		}
		<-time.After(9 * time.Second)
		synctest.Wait()
		if missing(t, b, "attached") {
			t.Error("a lease ended before its time")
		}
		<-time.After(2 * time.Second)
		synctest.Wait()
		if !missing(t, b, "attached") {
			t.Error("what was attached outlives its lease")
		}
	})
}

// rewrite changes the one resource of a kind, as a program of another version does it.
func rewrite(t *testing.T, b storage.Backend, kind string, change func(*resourcepb.Resource)) {
	t.Helper()
	res := proto.CloneOf(only(t, b, "lease", kind))
	change(res)
	if _, err := b.WriteCAS(t.Context(), res); err != nil {
		t.Fatal(err)
	}
}

func newer(res *resourcepb.Resource) { res.Id.Type.GroupVersion = "v2" }

func unreadable(res *resourcepb.Resource) {
	res.Data = &anypb.Any{TypeUrl: "type.example/unknown", Value: []byte{1}}
}

// Whoever wrote the newest renewal, it is one.
func TestARenewalOfAnotherVersion(t *testing.T) {
	in(t, func(t *testing.T, b storage.Backend) {
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
			rewrite(t, b, "Renewal", newer)
			<-time.After(9 * time.Second)
			synctest.Wait()
			if missing(t, b, "attached") {
				t.Error("a lease ended before its time")
			}
			if _, err := k.Renew(t.Context(), "session"); err != nil {
				t.Error(err)
			}
			rewrite(t, b, "Renewal", newer)
			if err := ends(); err != nil {
				t.Error(err)
			}
			synctest.Wait()
			if !missing(t, b, "attached") {
				t.Error("what was attached outlives its lease")
			}
		}
	})
}

// A lease that this program does not understand is nobody's but its writer's: it does not end by itself, hides no other, and can be revoked.
func TestALeaseThatCannotBeRead(t *testing.T) {
	for name, change := range map[string]func(*resourcepb.Resource){
		"unknown payload": unreadable,
		"newer version":   newer,
		"no time to live": func(res *resourcepb.Resource) {
			data, err := anypb.New(&structpb.Struct{})
			if err != nil {
				t.Fatal(err)
			}
			res.Data = data
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b storage.Backend) {
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
					t.Error("a lease of an unknown time to live ended")
				}
				if names, err := k.Names(t.Context()); err != nil || !slices.Equal(names, []string{"other"}) {
					t.Errorf("%v, %v", names, err)
				}
				if _, err := k.Renew(t.Context(), "session"); err == nil || errors.Is(err, storage.ErrNotFound) {
					t.Errorf("renewed: %v", err)
				}
				if err := k.Revoke(t.Context(), "session"); err != nil {
					t.Error(err)
				}
				if !missing(t, b, "attached") {
					t.Error("what was attached outlives its lease")
				}
				only(t, b, "lease", "Lease")
				only(t, b, "lease", "Renewal")
			})
		})
	}
}
