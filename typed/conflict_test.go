package typed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// racing is a backend that calls a function before its next write.
type racing struct {
	storage.Backend
	race func()
}

func (b *racing) callRace() {
	if race := b.race; race != nil {
		b.race = nil
		race()
	}
}

func (b *racing) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	b.callRace()
	return b.Backend.WriteCAS(ctx, res)
}

func (b *racing) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	b.callRace()
	return b.Backend.DeleteCAS(ctx, id, version)
}

// A resource is deleted and created again between the read and the write of a change. The change is repeated with the new resource. A caller that
// names the earlier uid gets the error as if the resource had been gone before the call.
func TestChangeOfRecreatedResource(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, inner storage.Backend) {
		b := &racing{Backend: inner}
		c, other := typed.New[*wrapperspb.Int64Value](b, counterType), typed.New[*wrapperspb.Int64Value](inner, counterType)
		increment := func(o *counter) error { o.Data.Value++; return nil }
		for name, call := range map[string]struct {
			change func(id *resourcepb.ID) (*counter, error)
			value  int64
			err    error
		}{
			"update": {func(id *resourcepb.ID) (*counter, error) { return c.Update(ctx, id, increment) }, 11, storage.ErrNotFound},
			"apply":  {func(id *resourcepb.ID) (*counter, error) { return c.Apply(ctx, id, increment) }, 11, typed.ErrExists},
			"renew":  {func(id *resourcepb.ID) (*counter, error) { return c.Renew(ctx, id) }, 10, storage.ErrNotFound},
			"update status": {func(id *resourcepb.ID) (*counter, error) {
				return c.UpdateStatus(ctx, id, "me", func(_ *counter, s *resourcepb.Status) error { s.ObservedGeneration += "g"; return nil })
			}, 10, storage.ErrNotFound},
		} {
			id := c.ID(shop, name)
			create := func(value int64) *counter {
				made, err := other.Create(ctx, counter{ID: id, Data: wrapperspb.Int64(value), TTL: time.Hour})
				if err != nil {
					t.Fatal(err)
				}
				return made
			}
			var again *counter
			recreate := func() {
				if err := other.Delete(ctx, id, typed.Preconditions{}); err != nil {
					t.Fatal(err)
				}
				again = create(10)
			}
			create(1)
			b.race = recreate
			got, err := call.change(id)
			if err != nil || got.Data.Value != call.value || got.ID.Uid != again.ID.Uid || got.Version == again.Version {
				t.Errorf("%s returned %v, %v, expected the value %d in the resource with the uid %s", name, got, err, call.value, again.ID.Uid)
			}
			b.race = recreate
			if got, err := call.change(again.ID); !errors.Is(err, call.err) {
				t.Errorf("%s of the earlier uid returned %v, %v, expected %v", name, got, err, call.err)
			}
		}
	})
}

// A resource changes between the read and the deletion. A deletion of any version succeeds, and one of the earlier version fails at once.
func TestDeletionOfChangedResource(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, inner storage.Backend) {
		b := &racing{Backend: inner}
		c, other := typed.New[*wrapperspb.Int64Value](b, counterType), typed.New[*wrapperspb.Int64Value](inner, counterType)
		made, err := c.Create(ctx, counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(1)})
		if err != nil {
			t.Fatal(err)
		}
		change := func() {
			if _, err := other.Update(ctx, made.ID, func(o *counter) error { o.Data.Value++; return nil }); err != nil {
				t.Error(err)
			}
		}
		b.race = change
		if err := c.Delete(ctx, made.ID, typed.Preconditions{Version: made.Version}); !errors.Is(err, storage.ErrCASFailure) {
			t.Errorf("a deletion of an earlier version returned %v, expected ErrCASFailure", err)
		}
		if err := c.Delete(ctx, made.ID, typed.Preconditions{Uid: "other"}); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a deletion of two uids returned %v, expected ErrInvalid", err)
		}
		if o, err := c.Get(ctx, storage.StrongConsistency, made.ID); err != nil || o.Data.Value != 2 {
			t.Fatalf("stored: %v, %v, expected 2", o, err)
		}
		b.race = change
		if err := c.Delete(ctx, made.ID, typed.Preconditions{Uid: made.ID.Uid}); err != nil {
			t.Error(err)
		}
		if o, err := c.Get(ctx, storage.StrongConsistency, made.ID); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("stored: %v, %v, expected that the resource is deleted", o, err)
		}
	})
}

// contended is a backend that refuses all changes, because other writers are faster. It records their times.
type contended struct {
	storage.Backend
	at []time.Time
}

func (b *contended) refuse() error {
	b.at = append(b.at, time.Now())
	return storage.ErrCASFailure
}

func (b *contended) WriteCAS(context.Context, *resourcepb.Resource) (*resourcepb.Resource, error) {
	return nil, b.refuse()
}

func (b *contended) DeleteCAS(context.Context, *resourcepb.ID, string) error { return b.refuse() }

func (b *contended) Commit(context.Context, []storage.Op) ([]*resourcepb.Resource, error) {
	return nil, &storage.OpError{Err: b.refuse()}
}

func (b *contended) MaxOps() int { return 64 }

// While other writers are faster, changes are repeated with growing pauses until the context ends, and then report both.
func TestPausesBetweenConflicts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := inmem.New(nil)
		defer inner.Close()
		made, err := typed.New[*wrapperspb.Int64Value](inner, counterType).Create(t.Context(), counter{
			ID: &resourcepb.ID{Type: counterType, Tenancy: shop, Name: "a"}, Data: wrapperspb.Int64(1), TTL: time.Hour,
		})
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range map[string]func(context.Context, *contended, *typed.Client[*wrapperspb.Int64Value]) error{
			"update": func(ctx context.Context, _ *contended, c *typed.Client[*wrapperspb.Int64Value]) error {
				_, err := c.Update(ctx, made.ID, func(o *counter) error { o.Data.Value++; return nil })
				return err
			},
			"renew": func(ctx context.Context, _ *contended, c *typed.Client[*wrapperspb.Int64Value]) error {
				_, err := c.Renew(ctx, made.ID)
				return err
			},
			"delete": func(ctx context.Context, _ *contended, c *typed.Client[*wrapperspb.Int64Value]) error {
				return c.Delete(ctx, made.ID, typed.Preconditions{})
			},
			"transact": func(ctx context.Context, b *contended, c *typed.Client[*wrapperspb.Int64Value]) error {
				return typed.Transact(ctx, b, func(tx *typed.Tx) error { return c.In(tx).Delete(made.ID) })
			},
		} {
			b := &contended{Backend: inner}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			err := change(ctx, b, typed.New[*wrapperspb.Int64Value](b, counterType))
			cancel()
			if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, storage.ErrCASFailure) {
				t.Errorf("%s: %v, expected the context's error and ErrCASFailure", name, err)
			}
			for i := range b.at[1:] {
				shortest := min(time.Millisecond<<i, 200*time.Millisecond)
				if pause := b.at[i+1].Sub(b.at[i]); pause < shortest || pause > shortest*3/2 {
					t.Errorf("%s: pause %d was %v, expected %v to %v", name, i+1, pause, shortest, shortest*3/2)
				}
			}
			if len(b.at) < 20 {
				t.Errorf("%s: %d attempts in 5s, expected at least 20", name, len(b.at))
			}
		}
	})
}
