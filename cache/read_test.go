package cache_test

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A read does not return a resource that the snapshot of an earlier watch lacked.
func TestReadAfterSnapshot(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	expect(t, "a strong read", readData(t, c, strong, "a"), "1")
	release := g.hold()
	fixture.Remove(t, g.Backend, a)
	w, err := c.WatchList(t.Context(), fixture.AllTypes, fixture.AllTenancies, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if ev := fixture.Next(t, w); ev.GetEndOfSnapshot() == nil {
		t.Fatalf("the snapshot has %v, expected nothing", ev)
	}
	got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
	expect(t, "a read after the snapshot", got, "nothing")
}

// A resource that a list of the database lacked does not appear later, although the copy may still have to replay its creation and deletion.
func TestReadAfterListWithoutResource(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, &cache.Options{Types: []storage.UnversionedType{fixture.Type}})
	release := g.hold()
	fixture.Remove(t, g.Backend, fixture.Write(t, g.Backend, fixture.Resource("a", "1")))
	if all, err := c.List(t.Context(), eventual, fixture.AllTypes, fixture.AllTenancies, ""); err != nil || len(all) > 0 {
		t.Fatalf("the list has %v, %v, expected nothing", all, err)
	}
	g.passEvents(t, 1)
	got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
	expect(t, "a read after the list", got, "nothing")
}

// A read finds the resources that OwnerReferences returned.
func TestReadAfterReferences(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, &cache.Options{Types: []storage.UnversionedType{fixture.Type}})
	release := g.hold()
	a := fixture.Resource("a", "1")
	a.Owner = fixture.ID("owner")
	fixture.Write(t, g.Backend, a)
	if ids, err := c.OwnerReferences(t.Context(), fixture.ID("owner")); err != nil || len(ids) != 1 {
		t.Fatalf("the owner has the references %v, %v, expected one", ids, err)
	}
	got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
	expect(t, "a read after the references", got, "1")
}

// A deletion with another uid, or with none, deletes nothing, although its version is stored.
func TestDeleteWithOtherUid(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	expect(t, "a strong read", readData(t, c, strong, "a"), "1")
	defer g.hold()()
	for _, uid := range []string{"", "another"} {
		id := fixture.ID("a")
		id.Uid = uid
		if err := c.DeleteCAS(t.Context(), id, a.GetVersion()); err != nil {
			t.Fatal(err)
		}
		expect(t, "a read after the deletion", readData(t, c, eventual, "a"), "1")
		tx, _ := storage.As[storage.Transactor](storage.Backend(c))
		if _, err := tx.Commit(t.Context(), []storage.Op{{Delete: id, Version: a.GetVersion()}}); err != nil {
			t.Fatal(err)
		}
		expect(t, "a read after the transaction", readData(t, c, eventual, "a"), "1")
	}
}

// A strong read of a type that is not copied needs no barrier.
func TestStrongReadOfOtherType(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, &cache.Options{Types: []storage.UnversionedType{fixture.Type}})
	defer g.hold()()
	other := fixture.Resource("a", "other")
	other.Id.Type.Kind = "Other"
	fixture.Write(t, g.Backend, other)
	if res, err := c.Read(t.Context(), strong, other.Id); err != nil || string(res.GetData().GetValue()) != "other" {
		t.Errorf("a read of another type returned %v, %v", res, err)
	}
	if g.bookmarkRequests() > 0 {
		t.Errorf("%d bookmarks were requested, expected none", g.bookmarkRequests())
	}
}

// Options.Types must name concrete types. A wildcard would mean a type with that literal name, which no resource has.
func TestWildcardTypesAreRefused(t *testing.T) {
	t.Parallel()
	b := fixture.Open(t, "mem://")
	for _, typ := range []storage.UnversionedType{fixture.AllTypes, {Group: fixture.Type.Group, Kind: "*"}, {}, {Group: "\xff", Kind: "K"}} {
		c, err := cache.New(t.Context(), b, &cache.Options{Types: []storage.UnversionedType{fixture.Type, typ}})
		if !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("a cache of the type %v: %v, expected ErrInvalid", typ, err)
		}
		if c != nil {
			defer c.Close()
		}
	}
}

// A resource is created and deleted during a relist, after the list's position. It stays deleted.
func TestCreateAndDeleteDuringRelist(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	listing, wrote := make(chan struct{}), make(chan struct{})
	g.beforeSnapshot = func() {
		close(listing)
		<-wrote
	}
	g.endWatches()
	<-listing
	fixture.Remove(t, c, fixture.Write(t, c, fixture.Resource("a", "1")))
	release := g.hold()
	close(wrote)
	fixture.Eventually(t, "the list is the copy", func() bool { return c.Stats().Live })
	expect(t, "a read when the store is listed", readData(t, c, eventual, "a"), "nothing")
	g.passEvents(t, 1)
	expect(t, "a read after the copy has replayed the creation", readData(t, c, eventual, "a"), "nothing")
	release()
	expect(t, "a strong read", readData(t, c, strong, "a"), "nothing")
}

// Closing the inner backend closes the cache.
func TestInnerBackendClosed(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	changed := c.ErrChanged()
	if err := g.Backend.Close(); err != nil {
		t.Fatal(err)
	}
	<-changed
	fixture.Eventually(t, "the copy has ended", func() bool { return errors.Is(c.Err(), storage.ErrClosed) && !c.Stats().Live })
	if _, err := c.Read(t.Context(), eventual, a.GetId()); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a read ended with %v, expected ErrClosed", err)
	}
	if _, err := c.List(t.Context(), eventual, fixture.AllTypes, fixture.AllTenancies, ""); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a list ended with %v, expected ErrClosed", err)
	}
}

// Without bookmarks, a list of the database marks every key. The read exempts each key that it returned at the copy's version. Each
// other key stays marked until a read of the database returns the copy's version.
func TestReadAfterListWithoutBookmarks(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, noBookmarks{g}, nil)
	fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Write(t, c, fixture.Resource("b", "1"))
	fixture.Eventually(t, "the copy has both", func() bool { return c.Stats().Resources == 2 })
	if all, err := c.List(t.Context(), strong, fixture.Type, fixture.Tenancy, "a"); err != nil || len(all) != 1 {
		t.Fatalf("the list has %v, %v, expected one", all, err)
	}
	for range 10 {
		expect(t, "a read of the listed resource", readData(t, c, eventual, "a"), "1")
		expect(t, "a read of the other resource", readData(t, c, eventual, "b"), "1")
	}
	if g.reads != 1 {
		t.Errorf("%d reads went to the database, expected one", g.reads)
	}
}
