// Package mover tests what a migration needs of a backend: that its driver is a [driver.Mover], and perhaps a [driver.GuardedMover],
// a [driver.BulkReader] and a [driver.Loader]. It is written for authors of adapters, in this repository and outside.
//
//	func TestMover(t *testing.T) {
//		mover.Run(t, mover.Harness{
//			Open:     func(t *testing.T) (one, other storage.Backend) { … },
//			NoLoader: "the database has nothing faster than a transaction",
//		})
//	}
package mover

import (
	"context"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// patience is how long a test may take, also on a busy machine.
const patience = 5 * time.Minute

// Harness says how to reach the backend under test, and which optional parts it does not have. Each exemption is a sentence that says
// why.
type Harness struct {
	// Open returns two handles on one new, empty store. Open closes them at the end of the test, by t.Cleanup.
	Open func(t *testing.T) (one, other storage.Backend)
	// NoGuards says why the backend has no driver.GuardedMover.
	NoGuards string
	// NoBulkReader says why the backend has no driver.BulkReader.
	NoBulkReader string
	// NoLoader says why the backend has no driver.Loader.
	NoLoader string
}

// Run runs the tests. Each is a subtest with a store of its own, beside the others.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for _, c := range []struct {
		name string
		run  func(t *testing.T, one, other store)
	}{
		{"notes", notes},
		{"limits of notes", noteLimits},
		{"notes and fence are hidden", hidden},
		{"fence refuses all writes", refuses},
		{"fence is opened", opens},
		{"nothing is acknowledged after the fence", race},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			one, other := h.open(t)
			c.run(t, one, other)
		})
	}
	optional(t, h, "guarded mover", h.NoGuards, map[string]func(t *testing.T, m driver.GuardedMover, one, other store){
		"epochs": epochs, "guards": guards, "guarded loads": guardedLoads,
	})
	optional(t, h, "bulk reader", h.NoBulkReader, map[string]func(t *testing.T, r driver.BulkReader, one, other store){"steps": readsInSteps})
	optional(t, h, "loader", h.NoLoader, map[string]func(t *testing.T, l driver.Loader, one, other store){
		"content": loads, "all or nothing": loadsAllOrNothing, "watches": loadsSeen,
	})
}

// optional runs tests of a part that a backend may lack, if the harness says why.
func optional[T any](t *testing.T, h Harness, name, exempt string, tests map[string]func(t *testing.T, part T, one, other store)) {
	if exempt != "" {
		t.Run("no "+name, func(t *testing.T) {
			t.Parallel()
			t.Log(exempt)
			one, _ := h.open(t)
			if _, has := storage.As[T](one.Backend); has {
				t.Errorf("the backend has a %s although the harness says: %s", name, exempt)
			}
		})
		return
	}
	for test, run := range tests {
		t.Run(name+", "+test, func(t *testing.T) {
			t.Parallel()
			one, other := h.open(t)
			part, has := storage.As[T](one.Backend)
			if !has {
				t.Fatalf("the backend has no %s and the harness does not say why", name)
			}
			run(t, part, one, other)
		})
	}
}

// store is a handle with its Mover.
type store struct {
	storage.Backend
	driver.Mover
}

func (h *Harness) open(t *testing.T) (one, other store) {
	t.Helper()
	a, b := h.Open(t)
	return as(t, a), as(t, b)
}

func as(t *testing.T, b storage.Backend) store {
	t.Helper()
	m, ok := storage.As[driver.Mover](b)
	if !ok {
		t.Fatalf("%T has no driver.Mover", b)
	}
	return store{b, m}
}

// close closes the store for writing.
func (s store) close(t *testing.T, target string) {
	t.Helper()
	ok(t, s.SetFence(limited(t), &target))
	target = "changed by the caller" // who may, since what is given is not kept
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

var everything = storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}

func everywhere() *resourcepb.Tenancy {
	return &resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}
}

func resource(name string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: &resourcepb.ID{
		Uid: "uid-" + name, Name: name,
		Type:    &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Thing"},
		Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"},
	}}
}

// contents lists the whole store.
func contents(t *testing.T, b storage.Backend) []*resourcepb.Resource {
	t.Helper()
	return must[[]*resourcepb.Resource](t)(b.List(limited(t), storage.StrongConsistency, everything, everywhere(), ""))
}
