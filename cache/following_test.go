package cache_test

import (
	"context"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/moved"
)

// A cache follows its store to another one and then has the versions of that store. A write at the version of an eventual read succeeds.
func TestCopyFollowsTheStore(t *testing.T) {
	from, to := inmem.New(nil), inmem.New(nil)
	store := moved.New(from, func(context.Context, *storage.MovedError) (storage.Backend, error) { return to, nil })
	c, err := cache.New(fixture.Context(t), store, &cache.Options{Types: []storage.UnversionedType{fixture.Type}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Write(t, c, fixture.Resource("b", "1"))
	o := &migrate.Options{From: "old", To: "new", Live: true, CutoverLag: time.Hour}
	if _, err := migrate.Run(fixture.Context(t), from, to, o); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "the version of the new store", func() bool {
		res, err := c.Read(fixture.Context(t), storage.EventualConsistency, fixture.ID("a"))
		if err != nil {
			t.Fatal(err)
		}
		return res.Version == fixture.Stored(t, to, fixture.ID("a")).Version
	})
	res, err := c.Read(fixture.Context(t), storage.EventualConsistency, fixture.ID("b"))
	if err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, c, res)
}

// A watch taken through a cache ends at a move if its reader keeps a copy, such as another cache.
func TestCopyOfACacheFollowsTheStore(t *testing.T) {
	from, to := inmem.New(nil), inmem.New(nil)
	store := moved.New(from, func(context.Context, *storage.MovedError) (storage.Backend, error) { return to, nil })
	inner := newCache(t, store, nil)
	outer := newCache(t, inner, nil)
	fixture.Write(t, outer, fixture.Resource("a", "1"))
	o := &migrate.Options{From: "old", To: "new", Live: true, CutoverLag: time.Hour}
	if _, err := migrate.Run(fixture.Context(t), from, to, o); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "the version of the new store", func() bool {
		res, err := outer.Read(fixture.Context(t), storage.EventualConsistency, fixture.ID("a"))
		if err != nil {
			t.Fatal(err)
		}
		return res.Version == fixture.Stored(t, to, fixture.ID("a")).Version
	})
}
