package typed_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// A follower keeps its watch while there are changes, and the program may end the loop at an event of each kind.
func TestFollowEndsWithLoop(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &faulty{Backend: inmem.New(nil)}
		defer b.Close()
		c := counters{t, t.Context(), typed.New[*wrapperspb.Int64Value](b, counterType)}
		for end, events := range map[typed.EventKind]int{typed.Synced: 1, typed.Progress: 7, typed.Put: 2, typed.Deleted: 6} {
			b.opens = nil
			ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
			count := 0
			for ev, err := range c.client.Follow(ctx, shop, "a", typed.FollowOptions{Progress: time.Minute}) {
				if err != nil {
					t.Fatal(err)
				}
				if count++; ev.Kind == end {
					break
				}
				switch count {
				case 1, 2, 3, 4: // after Synced and three updates
					if _, err := c.client.Apply(ctx, c.client.ID(shop, "a"), func(o *counter) error { o.Data.Value++; return nil }); err != nil {
						t.Fatal(err)
					}
				case 5:
					c.delete("a")
				case 6:
					c.create("b", 1) // the cursor advances
					c.delete("b")
				}
			}
			cancel()
			if count != events || !slices.Equal(b.opens, []string{"list"}) {
				t.Errorf("%d events until kind %d in the watches %q, expected %d in one", count, end, b.opens, events)
			}
			if err := c.client.Delete(t.Context(), c.client.ID(shop, "a"), typed.Preconditions{}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// failing is a backend whose transactions fail.
type failing struct {
	storage.Backend
	err error
}

func (b failing) Commit(context.Context, []storage.Op) ([]*resourcepb.Resource, error) {
	return nil, b.err
}
func (b failing) MaxOps() int { return 64 }

// An error of the function is returned only if the reads behind it were verified, or cannot be because they are too many.
func TestTransactReturnsVerifiedError(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, inner storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](inner, counterType)
		stop := errors.New("stop")
		for name, test := range map[string]struct{ commit, function, want, not error }{
			"not verified":   {storage.ErrInconsistent, stop, storage.ErrInconsistent, stop},
			"too many reads": {storage.ErrTooLarge, stop, stop, storage.ErrTooLarge},
			"no error":       {storage.ErrInconsistent, nil, storage.ErrInconsistent, stop},
		} {
			err := typed.Transact(ctx, failing{inner, test.commit}, func(tx *typed.Tx) error {
				for _, name := range []string{"a", "b"} {
					if _, err := c.In(tx).Get(c.ID(shop, name)); !errors.Is(err, storage.ErrNotFound) {
						t.Error(err)
					}
				}
				return test.function
			})
			if !errors.Is(err, test.want) || errors.Is(err, test.not) {
				t.Errorf("%s: got %v, expected %v", name, err, test.want)
			}
		}
	})
}

// A transaction sets the time of each changed status, and of no other one. It deletes a resource only under its uid.
func TestTransactStatusesAndUids(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		transact := func(fn func(in *typed.TxClient[*wrapperspb.Int64Value]) error) {
			t.Helper()
			if err := typed.Transact(ctx, b, func(tx *typed.Tx) error { return fn(c.In(tx)) }); err != nil {
				t.Fatal(err)
			}
		}
		past := timestamppb.New(time.Unix(1, 0))
		o := &counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(1), Status: map[string]*resourcepb.Status{"me": {UpdatedAt: past}, "you": {UpdatedAt: past}}}
		transact(func(in *typed.TxClient[*wrapperspb.Int64Value]) error { return in.Put(o) })
		first := o.Status["me"].UpdatedAt.AsTime()
		if first.Equal(past.AsTime()) {
			t.Error("the status of a new resource has the time of the program")
		}
		transact(func(in *typed.TxClient[*wrapperspb.Int64Value]) error {
			changed, err := in.Get(o.ID)
			if err != nil {
				return err
			}
			changed.Data.Value, changed.Status["you"].ObservedGeneration = 2, "g"
			return in.Put(changed)
		})
		stored, err := c.Get(ctx, storage.StrongConsistency, o.ID)
		if err != nil || !stored.Status["me"].UpdatedAt.AsTime().Equal(first) || !stored.Status["you"].UpdatedAt.AsTime().After(first) {
			t.Errorf("stored: %v, %v, expected a new time of one status, after %v", stored, err, first)
		}
		transact(func(in *typed.TxClient[*wrapperspb.Int64Value]) error {
			other := c.ID(shop, "a")
			other.Uid = "other"
			if err := in.Delete(other); !errors.Is(err, storage.ErrNotFound) {
				t.Errorf("a deletion of another uid returned %v, expected ErrNotFound", err)
			}
			return in.Delete(o.ID)
		})
		if _, err := c.Get(ctx, storage.StrongConsistency, o.ID); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("after the deletion: %v, expected ErrNotFound", err)
		}
	})
}
