package cache_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Options.Trim affects only the resources in memory.
func TestTrim(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, &cache.Options{Trim: func(res *resourcepb.Resource) { res.Data = nil }})
	stored := fixture.Write(t, c, fixture.Resource("a", "payload"))
	expect(t, "the answer to a write", string(stored.GetData().GetValue()), "payload")
	expect(t, "a read from memory", readData(t, c, eventual, "a"), "")
	expect(t, "a read of the database", readData(t, c.Unwrap(), strong, "a"), "payload")
	before := c.Stats()
	fixture.Write(t, c, fixture.Resource("b", strings.Repeat("x", 100_000)))
	if after := c.Stats(); after.Resources != 2 || after.Bytes-before.Bytes > 1000 || after.Bytes <= before.Bytes {
		t.Errorf("the cache holds %+v after %+v, expected a little more", after, before)
	}
}

// Resources of other types come from the database, in reads and in lists of all types. A later read from memory is not older than such a list.
func TestTypes(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, &cache.Options{Types: []storage.UnversionedType{fixture.Type, fixture.Type}})
	release := g.hold()
	other := fixture.Resource("a", "other")
	other.Id.Type.Kind = "Other"
	fixture.Write(t, g.Backend, other)
	fixture.Write(t, g.Backend, fixture.Resource("a", "1"))
	if res, err := c.Read(t.Context(), eventual, other.Id); err != nil || string(res.GetData().GetValue()) != "other" {
		t.Errorf("a read of another type returned %v, %v", res, err)
	}
	expect(t, "a read of a copied type", readData(t, c, eventual, "a"), "nothing")
	if all, err := c.List(t.Context(), eventual, fixture.AllTypes, fixture.AllTenancies, ""); err != nil || len(all) != 2 {
		t.Errorf("a list of all types returned %v, %v, expected 2 resources", all, err)
	}
	got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
	expect(t, "a read after the list", got, "1")
	if n := c.Stats().Resources; n != 1 {
		t.Errorf("%d resources are in memory, expected 1", n)
	}
}

// A cache has the capabilities of the inner backend that it supports.
func TestCapabilities(t *testing.T) {
	t.Parallel()
	c := storage.Backend(newCache(t, fixture.Open(t, "mem://"), nil))
	_, pager := storage.As[storage.Pager](c)
	_, resumer := storage.As[storage.Resumer](c)
	_, transactor := storage.As[storage.Transactor](c)
	_, historian := storage.As[history.Historian](c)
	if !pager || !resumer || !transactor || !historian {
		t.Errorf("pager %v, resumer %v, transactor %v, historian %v, expected all", pager, resumer, transactor, historian)
	}
	if _, ok := storage.As[driver.Mover](c); ok {
		t.Error("a cache must not be a driver.Mover, because that bypasses the copy")
	}
	if found, ok := storage.As[*cache.Cache](c); !ok || storage.Backend(found) != c {
		t.Error("storage.As does not find the cache itself")
	}
}

// New fails over a closed backend.
func TestNewOverClosedBackend(t *testing.T) {
	t.Parallel()
	b := fixture.Open(t, "mem://")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := cache.New(t.Context(), b, nil); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("got %v, expected ErrClosed", err)
	}
}
