// Package handovertest is what every adapter's handover.Store must pass.
package handovertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/handover"
	"github.com/ashlar-dev/storage/resourcepb"
)

// patience is how long anything may take.
const patience = 2 * time.Minute

// Run runs the tests. open returns two handles on one new, empty store; the caller closes them at the end of the test.
func Run(t *testing.T, open func(t *testing.T) (one, other storage.Backend)) {
	for _, c := range []struct {
		name string
		run  func(t *testing.T, one, other store)
	}{
		{"journal", journal},
		{"journal is hidden", hidden},
		{"fence refuses all writes", refuses},
		{"unfence", unfence},
		{"nothing is acknowledged after the fence", race},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			one, other := open(t)
			c.run(t, as(t, one), as(t, other))
		})
	}
	runBulk(t, open)
	runEpochs(t, open)
}

type store struct {
	storage.Backend
	handover.Store
}

func as(t *testing.T, b storage.Backend) store {
	t.Helper()
	h, ok := storage.As[handover.Store](b)
	if !ok {
		t.Fatalf("%T is no handover.Store", b)
	}
	return store{b, h}
}

func limited(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t *testing.T) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func resource(name string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: &resourcepb.ID{
		Uid: "uid-" + name, Name: name,
		Type:    &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Thing"},
		Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"},
	}}
}

func journal(t *testing.T, one, other store) {
	ctx := limited(t)
	if value, revision, err := one.ReadJournal(ctx, "note"); err != nil || revision != "" || len(value) > 0 {
		t.Fatalf("no note: got %q, %q, %v", value, revision, err)
	}
	r1 := must[string](t)(one.WriteJournal(ctx, "note", []byte("a"), ""))
	if _, err := other.WriteJournal(ctx, "note", []byte("b"), ""); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("creating it again: got %v, expected ErrCASFailure", err)
	}
	large := bytes.Repeat([]byte("0123456789abcde\n"), handover.MaxValue/16)
	r2 := must[string](t)(other.WriteJournal(ctx, "note", large, r1))
	if r1 == "" || r2 == "" || r1 == r2 {
		t.Errorf("revisions %q and %q must differ and not be empty", r1, r2)
	}
	if _, err := one.WriteJournal(ctx, "note", []byte("c"), r1); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("an old revision: got %v, expected ErrCASFailure", err)
	}
	if value, revision, err := one.ReadJournal(ctx, "note"); err != nil || revision != r2 || !bytes.Equal(value, large) {
		t.Errorf("the other handle's note: got %d bytes, %q, %v, expected %d bytes, %q", len(value), revision, err, len(large), r2)
	}
	must[string](t)(one.WriteJournal(ctx, "second", []byte("x"), ""))
	if err := one.DeleteJournal(ctx, "note", r1); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("deleting an old revision: got %v, expected ErrCASFailure", err)
	}
	ok(t, one.DeleteJournal(ctx, "note", r2))
	ok(t, one.DeleteJournal(ctx, "note", r2))
	if _, revision, err := other.ReadJournal(ctx, "note"); err != nil || revision != "" {
		t.Errorf("after the deletion: got %q, %v", revision, err)
	}
	r3 := must[string](t)(one.WriteJournal(ctx, "note", nil, ""))
	if _, revision, err := other.ReadJournal(ctx, "note"); err != nil || revision != r3 || r3 == "" {
		t.Errorf("an empty note: got %q, %v, expected %q", revision, err, r3)
	}
}

func hidden(t *testing.T, one, _ store) {
	ctx := limited(t)
	everything := storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	everywhere := &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
	watch := must[storage.Watch](t)(one.WatchList(ctx, everything, everywhere, ""))
	defer watch.Close()
	next := func() *resourcepb.WatchEvent { return must[*resourcepb.WatchEvent](t)(watch.Next(ctx)) }
	if ev := next(); ev.GetEndOfSnapshot() == nil {
		t.Fatalf("the watch of an empty store begins with %v", ev)
	}
	revision := must[string](t)(one.WriteJournal(ctx, "note", []byte("a"), ""))
	must[string](t)(one.WriteJournal(ctx, "note", []byte("b"), revision))
	ok(t, one.Fence(ctx, "elsewhere"))
	ok(t, one.Unfence(ctx))
	must[*resourcepb.Resource](t)(one.WriteCAS(ctx, resource("marker")))
	if ev := next(); ev.GetUpsert().GetResource().GetId().GetName() != "marker" {
		t.Errorf("the watch shows more than what was written: %v", ev)
	}
	list := must[[]*resourcepb.Resource](t)(one.List(ctx, storage.StrongConsistency, everything, everywhere, ""))
	if len(list) != 1 {
		t.Errorf("the list holds %d resources, expected the one that was written", len(list))
	}
}

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

func refuses(t *testing.T, one, other store) {
	ctx := limited(t)
	there := must[*resourcepb.Resource](t)(other.WriteCAS(ctx, resource("there")))
	if _, fenced, err := one.Fenced(ctx); err != nil || fenced {
		t.Fatalf("a new store: fenced %v, %v", fenced, err)
	}
	ok(t, one.Fence(ctx, "etcd://first"))
	ok(t, one.Fence(ctx, "etcd://new-place"))
	for name, b := range map[string]store{"the fencing handle": one, "the other handle": other} {
		if target, fenced, err := b.Fenced(ctx); err != nil || !fenced || target != "etcd://new-place" {
			t.Errorf("%s: fenced %v for %q, %v", name, fenced, target, err)
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
		revision := must[string](t)(b.WriteJournal(ctx, "note", []byte("a"), ""))
		revision = must[string](t)(b.WriteJournal(ctx, "note", []byte("b"), revision))
		ok(t, b.DeleteJournal(ctx, "note", revision))
	}
}

func unfence(t *testing.T, one, other store) {
	ctx := limited(t)
	ok(t, one.Unfence(ctx))
	there := must[*resourcepb.Resource](t)(other.WriteCAS(ctx, resource("there")))
	ok(t, one.Fence(ctx, "mem://x"))
	if _, err := other.WriteCAS(ctx, resource("new")); !errors.Is(err, storage.ErrFenced) {
		t.Fatalf("got %v, expected ErrFenced", err)
	}
	ok(t, one.Unfence(ctx))
	if _, fenced, err := other.Fenced(ctx); err != nil || fenced {
		t.Errorf("fenced %v, %v", fenced, err)
	}
	for _, b := range []store{one, other} {
		there.Generation += "."
		there = must[*resourcepb.Resource](t)(b.WriteCAS(ctx, there))
	}
	ok(t, other.DeleteCAS(ctx, there.Id, there.Version))
}

// race fences a store under load from two handles. What was acknowledged must all be there when the fence has returned, and
// nothing afterwards.
func race(t *testing.T, one, other store) {
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
	ok(t, one.Fence(ctx, "mem://x"))
	list := func() map[string]bool {
		all := must[[]*resourcepb.Resource](t)(one.List(ctx, storage.StrongConsistency,
			storage.UnversionedType{Group: "demo", Kind: "Thing"}, &resourcepb.Tenancy{Partition: "default", Namespace: "default"}, ""))
		names := make(map[string]bool)
		for _, res := range all {
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
