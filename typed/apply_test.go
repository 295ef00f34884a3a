package typed_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

// Apply creates an absent resource and updates a stored one. Concurrent calls lose nothing.
func TestApply(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		id := c.ID(shop, "a")
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for range 10 {
					if _, err := c.Apply(ctx, id, func(o *counter) error { o.Data.Value++; return nil }); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		stored, err := c.Get(ctx, storage.StrongConsistency, id)
		if err != nil || stored.Data.Value != 80 {
			t.Fatal(stored, err)
		}
		same, err := c.Apply(ctx, id, func(*counter) error { return nil })
		if err != nil || same.Version != stored.Version {
			t.Errorf("an Apply without a change wrote: %v, %v", same, err)
		}
		other := c.ID(shop, "a")
		other.Uid = "other"
		if _, err := c.Apply(ctx, other, func(*counter) error { return nil }); !errors.Is(err, typed.ErrExists) || !errors.Is(err, storage.ErrWrongUid) {
			t.Errorf("an Apply with another uid: %v, expected ErrExists", err)
		}
		stop := errors.New("stop")
		if _, err := c.Apply(ctx, c.ID(shop, "b"), func(o *counter) error {
			if o.Version != "" || o.Data == nil || o.ID.GetName() != "b" {
				t.Errorf("an absent resource is %v", o)
			}
			return stop
		}); err != stop {
			t.Errorf("Apply returned %v, expected the function's error", err)
		}
		made, err := c.Apply(ctx, c.ID(shop, "b"), func(o *counter) error {
			o.ID.Name, o.ID.Uid, o.Version, o.Status = "c", "x", "y", map[string]*resourcepb.Status{"k": {}}
			o.Metadata = map[string]string{"k": "v"}
			return nil
		})
		if err != nil || made.ID.GetName() != "b" || made.ID.GetUid() == "x" || made.ID.GetUid() == "" || made.Generation == "" || len(made.Status) > 0 || made.Metadata["k"] != "v" {
			t.Errorf("Apply created %v, %v", made, err)
		}
		cities := typed.NewJSON[city](b, &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Place"})
		if made, err := cities.Apply(ctx, cities.ID(shop, "a"), func(o *typed.Object[city]) error { o.Data.People = 5; return nil }); err != nil || made.Data.People != 5 {
			t.Errorf("Apply created %v, %v", made, err)
		}
	})
}

// lostAnswer is a backend whose next write is applied and fails.
type lostAnswer struct {
	storage.Backend
	isLost bool
}

func (b *lostAnswer) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	stored, err := b.Backend.WriteCAS(ctx, res)
	if b.isLost {
		b.isLost = false
		return nil, errors.Join(err, storage.ErrInconsistent)
	}
	return stored, err
}

// A creation whose answer was lost is repeated with the same uid, and succeeds. Other content, another uid and a changed resource are refused.
func TestCreateAgain(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, inner storage.Backend) {
		b := &lostAnswer{Backend: inner, isLost: true}
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		o := counter{ID: c.ID(shop, "a"), Data: wrapperspb.Int64(1), Metadata: map[string]string{"k": "v"}}
		o.ID.Uid = "1"
		if _, err := c.Create(ctx, o); !errors.Is(err, storage.ErrInconsistent) {
			t.Fatal(err)
		}
		made, err := c.Create(ctx, o)
		if err != nil || made.Version == "" || made.Data.Value != 1 {
			t.Fatalf("the repeated creation returned %v, %v", made, err)
		}
		changed, another := o, o
		changed.Data = wrapperspb.Int64(2)
		another.ID = c.ID(shop, "a")
		for _, o := range []counter{changed, another} {
			if _, err := c.Create(ctx, o); !errors.Is(err, typed.ErrExists) {
				t.Errorf("create %v: %v, expected ErrExists", o, err)
			}
		}
		if _, err := c.Update(ctx, o.ID, func(o *counter) error { o.Data.Value = 3; return nil }); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Create(ctx, o); !errors.Is(err, typed.ErrExists) {
			t.Errorf("create of a changed resource: %v, expected ErrExists", err)
		}
	})
}

// A nil tenancy means the client's, in ids, lists, watches and followers.
func TestDefaultTenancy(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		plain := typed.New[*wrapperspb.Int64Value](b, typed.NewType("demo", "v1", "Counter"))
		inShop := plain.WithTenancy(shop)
		for client, want := range map[*typed.Client[*wrapperspb.Int64Value]]*resourcepb.Tenancy{plain: typed.NewTenancy("default", "default"), inShop: shop} {
			name := want.Namespace
			made, err := client.Create(ctx, counter{ID: client.ID(nil, name), Data: wrapperspb.Int64(1)})
			if err != nil || made.ID.Tenancy.Namespace != want.Namespace || made.ID.Tenancy.Partition != want.Partition {
				t.Fatal(made, err)
			}
			var names []string
			for o, err := range client.List(ctx, storage.StrongConsistency, nil, "") {
				if err != nil {
					t.Fatal(err)
				}
				names = append(names, o.ID.Name)
			}
			w, err := client.Watch(ctx, nil, "")
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			for ev, err := range w.Events(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				if ev.Kind == typed.Synced {
					break
				}
				names = append(names, ev.New.ID.Name)
			}
			for ev, err := range client.Follow(ctx, nil, "", typed.FollowOptions{}) {
				if err != nil {
					t.Fatal(err)
				}
				if ev.Kind == typed.Synced {
					break
				}
				names = append(names, ev.New.ID.Name)
			}
			if !slices.Equal(names, []string{name, name, name}) {
				t.Errorf("the list, the watch and the follower have %q, expected %q thrice", names, name)
			}
		}
	})
}

// The events of a watch are a sequence: a payload error does not end it, and the end of the watch does.
func TestWatchEvents(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		c := typed.New[*wrapperspb.Int64Value](b, counterType)
		id := c.ID(shop, "a")
		id.Uid = "1"
		if _, err := b.WriteCAS(ctx, &resourcepb.Resource{Id: id}); err != nil {
			t.Fatal(err)
		}
		w, err := c.Watch(ctx, shop, "")
		if err != nil {
			t.Fatal(err)
		}
		var errs []error
		cursors := 0
		for ev, err := range w.Events(ctx) {
			if ev.Cursor != "" {
				cursors++
			}
			if errs = append(errs, err); ev.Kind == typed.Synced {
				w.Close()
			}
		}
		if len(errs) != 3 || !errors.As(errs[0], new(*typed.PayloadError)) || errs[1] != nil || !errors.Is(errs[2], storage.ErrWatchClosed) || cursors != 1 {
			t.Errorf("the sequence had the errors %v and %d cursors, expected a PayloadError, nil and ErrWatchClosed, and one cursor", errs, cursors)
		}
	})
}
