package mover

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// refusals tries everything that changes a store.
func refusals(ctx context.Context, b storage.Backend, there *resourcepb.Resource) map[string]error {
	_, create := b.WriteCAS(ctx, resource("new"))
	update := resource("there")
	update.Version, update.Generation = there.Version, "2"
	_, replace := b.WriteCAS(ctx, update)
	tried := map[string]error{"create": create, "update": replace, "delete": b.DeleteCAS(ctx, there.Id, there.Version)}
	if t, is := storage.As[storage.Transactor](b); is {
		_, tried["transaction"] = t.Commit(ctx, []storage.Op{{Write: resource("new")}})
		_, tried["larger transaction"] = t.Commit(ctx, []storage.Op{
			{Write: resource("new")}, {Delete: there.Id, Version: there.Version}, {Check: resource("none").Id},
		})
	}
	return tried
}

// refuses closes a store and tries to change it, through both handles.
func refuses(t testing.TB, one, other store) {
	ctx := limited(t)
	there := must[*resourcepb.Resource](t)(other.WriteCAS(ctx, resource("there")))
	if state, err := one.Fence(ctx); err != nil || state.Closed {
		t.Fatalf("a new store: %+v, %v", state, err)
	}
	one.close(t, "etcd://first")
	one.close(t, "etcd://new-place")
	for name, b := range map[string]store{"the fencing handle": one, "the other handle": other} {
		if state, err := b.Fence(ctx); err != nil || !state.Closed || state.Target != "etcd://new-place" {
			t.Errorf("%s: %+v, %v", name, state, err)
		}
		for what, err := range refusals(ctx, b.Backend, there) {
			if !errors.Is(err, storage.ErrFenced) || !strings.Contains(err.Error(), "etcd://new-place") {
				t.Errorf("%s, %s: got %v, expected ErrFenced with the target", name, what, err)
			}
		}
		got, err := b.Read(ctx, storage.StrongConsistency, there.Id)
		if err != nil || got.Version != there.Version {
			t.Errorf("%s: reading: %v, %v", name, got, err)
		}
		// The tool that moves the data still takes notes.
		revision := must[string](t)(b.WriteNote(ctx, "note", []byte("a"), ""))
		revision = must[string](t)(b.WriteNote(ctx, "note", []byte("b"), revision))
		ok(t, b.DeleteNote(ctx, "note", revision))
	}
}

// opens closes and opens a store, and writes to it.
func opens(t testing.TB, one, other store) {
	ctx := limited(t)
	ok(t, one.SetFence(ctx, nil))
	there := must[*resourcepb.Resource](t)(other.WriteCAS(ctx, resource("there")))
	one.close(t, "mem://x")
	if _, err := other.WriteCAS(ctx, resource("new")); !errors.Is(err, storage.ErrFenced) {
		t.Fatalf("got %v, expected ErrFenced", err)
	}
	ok(t, one.SetFence(ctx, nil))
	if state, err := other.Fence(ctx); err != nil || state.Closed {
		t.Errorf("%+v, %v", state, err)
	}
	for _, b := range []store{one, other} {
		there.Generation += "."
		there = must[*resourcepb.Resource](t)(b.WriteCAS(ctx, there))
	}
	ok(t, other.DeleteCAS(ctx, there.Id, there.Version))
}

// race fences a store under load from two handles. What was acknowledged must all be there when the fence has returned, and
// nothing afterwards.
func race(t testing.TB, one, other store) {
	ctx := limited(t)
	const writers = 6
	warm := make(chan struct{}, writers)
	acknowledged := make([]int, writers)
	ends := make([]error, writers)
	var group sync.WaitGroup
	for i := range writers {
		b := []store{one, other}[i%2]
		group.Go(func() {
			for n := 1; ; n++ {
				if _, err := b.WriteCAS(ctx, resource(fmt.Sprintf("%d-%06d", i, n))); err != nil {
					ends[i] = err
					return
				}
				acknowledged[i] = n
				if n == 10 {
					warm <- struct{}{}
				}
			}
		})
	}
	for range writers {
		select {
		case <-warm:
		case <-ctx.Done():
			t.Fatal("the writers do not come to write")
		}
	}
	one.close(t, "mem://x")
	list := func() map[string]bool {
		names := make(map[string]bool)
		for _, res := range contents(t, one) {
			names[res.Id.Name] = true
		}
		return names
	}
	after := list()
	group.Wait()
	later := list()
	if len(later) != len(after) {
		t.Errorf("the store held %d resources when the fence had returned, and %d later", len(after), len(later))
	}
	total := 0
	for i := range writers {
		if !errors.Is(ends[i], storage.ErrFenced) {
			t.Errorf("writer %d ended with %v, expected ErrFenced", i, ends[i])
		}
		for n := 1; n <= acknowledged[i]; n++ {
			total++
			if name := fmt.Sprintf("%d-%06d", i, n); !after[name] {
				t.Errorf("%s was acknowledged, but was not there when the fence had returned", name)
			}
		}
	}
	if total != len(after) {
		t.Errorf("%d writes were acknowledged, and the store holds %d", total, len(after))
	}
}
