package typed_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/typed"
)

// The last selected event of a commit has no More, although the commit continues with resources that are not selected.
func TestFollowSelectorInCommit(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		client := typed.New[*wrapperspb.Int64Value](b, counterType)
		f := follow(t, client.Follow(ctx, shop, "", typed.FollowOptions{Selector: typed.Selector{"tier": "front"}}))
		f.expect("synced")
		commit := func(tier string, names ...string) {
			t.Helper()
			if err := typed.Transact(ctx, b, func(tx *typed.Tx) (err error) {
				for _, name := range names {
					o := &counter{ID: client.ID(shop, name), Data: wrapperspb.Int64(1)}
					if name == "b" || name == "d" {
						o.Metadata = map[string]string{"tier": tier}
					}
					err = errors.Join(err, client.In(tx).Put(o))
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		commit("front", "a", "b", "c", "d", "e")
		for _, more := range []bool{true, false} {
			if ev, err, _ := f.next(); err != nil || ev.Kind != typed.Put || ev.More != more {
				t.Errorf("%v, %v, expected a put with More: %v", ev, err, more)
			}
		}
	})
}

// Changes of resources that are not selected advance the cursor without an event.
func TestFollowProgressOfSelector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &faulty{Backend: inmem.New(nil)}
		defer b.Close()
		c := counters{t, t.Context(), typed.New[*wrapperspb.Int64Value](b, counterType)}
		f := follow(t, c.client.Follow(t.Context(), shop, "", typed.FollowOptions{Progress: time.Minute, Selector: typed.Selector{"tier": "front"}}))
		f.expect("synced")
		synced := f.cursor
		c.create("a", 1)
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() { // changes more often than Progress
			defer close(ended)
			for i := range int64(20) {
				select {
				case <-stop:
					return
				case <-time.After(30 * time.Second):
					c.set("a", 2+i)
				}
			}
		}()
		begin := time.Now()
		f.expect("progress")
		if elapsed := time.Since(begin); elapsed > 2*time.Minute || f.cursor == synced {
			t.Errorf("progress came after %v", elapsed)
		}
		close(stop)
		<-ended
	})
}

// A resource is deleted whose last state cannot be decoded.
func TestFollowDeletionOfOtherPayload(t *testing.T) {
	onEachFaulty(t, func(c counters, b *faulty) {
		c.create("a", 1)
		c.create("b", 1)
		f := follow(c.T, c.client.Follow(c.ctx, shop, "", typed.FollowOptions{}))
		f.expect("put a 1", "put b 1", "synced")
		other, _ := anypb.New(durationpb.New(time.Second))
		for _, name := range []string{"a", "b"} {
			res := fixture.Stored(c.T, b, c.client.ID(shop, name))
			res.Data = other
			fixture.Write(c.T, b, res)
			if _, err, _ := f.next(); !errors.As(err, new(*typed.PayloadError)) {
				c.Errorf("%v, expected a PayloadError", err)
			}
		}
		c.delete("a")
		f.expect("deleted a 0")
		c.delete("b")
		b.endWatch(nil)
		b.compact(c.ctx, c.T)
		f.expect("deleted b 0", "synced")
	})
}

// Apply creates a resource of a type whose zero value is nil.
func TestApplyNilPayload(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		plans := typed.NewJSON[map[string]int](b, counterType)
		if _, err := plans.Apply(ctx, plans.ID(shop, "m"), func(o *typed.Object[map[string]int]) error {
			if o.Data == nil {
				return errors.New("the payload is nil")
			}
			o.Data["n"] = 1
			return nil
		}); err != nil {
			t.Error(err)
		}
		type plan struct{ N int }
		pointers := typed.NewJSON[*plan](b, counterType)
		if _, err := pointers.Apply(ctx, plans.ID(shop, "p"), func(o *typed.Object[*plan]) error {
			if o.Data == nil {
				return errors.New("the payload is nil")
			}
			o.Data.N = 1
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

// An object whose fields of T are zero is omitted by T, but has fields that T lacks.
func TestUpdateKeepsFieldsOfOmittedObject(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, b storage.Backend) {
		type inner struct {
			X int `json:"x,omitempty"`
		}
		type old struct {
			A inner `json:"a,omitzero"`
		}
		newer := typed.NewJSON[map[string]any](b, counterType)
		id := newer.ID(shop, "a")
		if _, err := newer.Create(ctx, typed.Object[map[string]any]{ID: id, Data: map[string]any{"a": map[string]any{"new": true}}}); err != nil {
			t.Fatal(err)
		}
		if _, err := typed.NewJSON[old](b, counterType).Update(ctx, id, func(o *typed.Object[old]) error { o.Data.A.X = 1; return nil }); err != nil {
			t.Fatal(err)
		}
		got, err := newer.Get(ctx, storage.StrongConsistency, id)
		if a, _ := got.Data["a"].(map[string]any); err != nil || a["new"] != true || a["x"] != 1.0 {
			t.Errorf("%v, %v", got.Data, err)
		}
	})
}
