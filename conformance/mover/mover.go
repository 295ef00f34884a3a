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

// rules are what the tests look at: those of every Mover, and those of the parts that a backend may lack.
var (
	moverRules = map[string]func(t testing.TB, one, other store){
		"notes": notes, "limits of notes": noteLimits, "notes and fence are hidden": hidden,
		"fence refuses all writes": refuses, "fence is opened": opens, "nothing is acknowledged after the fence": race,
	}
	guardRules = map[string]func(t testing.TB, m driver.GuardedMover, one, other store){
		"epochs": epochs, "guards": guards, "guarded loads": guardedLoads,
	}
	readerRules = map[string]func(t testing.TB, r driver.BulkReader, one, other store){"steps": readsInSteps}
	loaderRules = map[string]func(t testing.TB, l driver.Loader, one, other store){
		"content": loads, "all or nothing": loadsAllOrNothing, "watches": loadsSeen,
	}
)

// Run runs the tests. Each is a subtest with a store of its own, beside the others.
func Run(t *testing.T, h Harness) {
	t.Helper()
	for name, run := range moverRules {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one, other := h.open(t)
			run(t, one, other)
		})
	}
	optional(t, h, "guarded mover", h.NoGuards, guardRules)
	optional(t, h, "bulk reader", h.NoBulkReader, readerRules)
	optional(t, h, "loader", h.NoLoader, loaderRules)
}

// optional runs tests of a part that a backend may lack, if the harness says why.
func optional[T any](t *testing.T, h Harness, name, exempt string, tests map[string]func(t testing.TB, part T, one, other store)) {
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

func as(t testing.TB, b storage.Backend) store {
	t.Helper()
	m, ok := storage.As[driver.Mover](b)
	if !ok {
		t.Fatalf("%T has no driver.Mover", b)
	}
	return store{b, m}
}

// close closes the store for writing.
func (s store) close(t testing.TB, target string) {
	t.Helper()
	ok(t, s.SetFence(limited(t), &target))
	target = "changed by the caller" // who may, since what is given is not kept
}

func limited(t testing.TB) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func must[T any](t testing.TB) func(v T, err error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func ok(t testing.TB, err error) {
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
func contents(t testing.TB, b storage.Backend) []*resourcepb.Resource {
	t.Helper()
	return must[[]*resourcepb.Resource](t)(b.List(limited(t), storage.StrongConsistency, everything, everywhere(), ""))
}
