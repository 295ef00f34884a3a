package cache_test

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// What the snapshot of a watch lacks, a read does not show any more.
func TestReadAfterASnapshot(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	want(t, "a strong read", shows(t, c, strong, "a"), "1")
	release := v.hold()
	fixture.Remove(t, v.Backend, a)
	w, err := c.WatchList(t.Context(), fixture.AllTypes, fixture.AllTenancies, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if ev := fixture.Next(t, w); ev.GetEndOfSnapshot() == nil {
		t.Fatalf("the snapshot has %v, expected nothing", ev)
	}
	got := afterProof(t, v, release, func() string { return shows(t, c, eventual, "a") })
	want(t, "a read after the snapshot", got, "nothing")
}

// What a list of the database lacks does not come back: the copy may have yet to come by what was created and deleted before.
func TestReadAfterAListThatLacksIt(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, &cache.Options{Types: []storage.UnversionedType{fixture.Type}})
	release := v.hold()
	fixture.Remove(t, v.Backend, fixture.Write(t, v.Backend, fixture.Resource("a", "1")))
	if all, err := c.List(t.Context(), eventual, fixture.AllTypes, fixture.AllTenancies, ""); err != nil || len(all) > 0 {
		t.Fatalf("the list has %v, %v, expected nothing", all, err)
	}
	v.let(t, 1)
	got := afterProof(t, v, release, func() string { return shows(t, c, eventual, "a") })
	want(t, "a read after the list", got, "nothing")
}

// References that the database tells of are found by a read.
func TestReadAfterReferences(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, &cache.Options{Types: []storage.UnversionedType{fixture.Type}})
	release := v.hold()
	a := fixture.Resource("a", "1")
	a.Owner = fixture.ID("owner")
	fixture.Write(t, v.Backend, a)
	if ids, err := c.OwnerReferences(t.Context(), fixture.ID("owner")); err != nil || len(ids) != 1 {
		t.Fatalf("the owner has the references %v, %v, expected one", ids, err)
	}
	got := afterProof(t, v, release, func() string { return shows(t, c, eventual, "a") })
	want(t, "a read after the references", got, "1")
}

// A deletion of another uid, or of none, deletes nothing, though its version is stored.
func TestDeletionOfAnotherUid(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	want(t, "a strong read", shows(t, c, strong, "a"), "1")
	defer v.hold()()
	for _, uid := range []string{"", "another"} {
		id := fixture.ID("a")
		id.Uid = uid
		if err := c.DeleteCAS(t.Context(), id, a.GetVersion()); err != nil {
			t.Fatal(err)
		}
		want(t, "a read after the deletion", shows(t, c, eventual, "a"), "1")
		tx, _ := storage.As[storage.Transactor](storage.Backend(c))
		if _, err := tx.Commit(t.Context(), []storage.Op{{Delete: id, Version: a.GetVersion()}}); err != nil {
			t.Fatal(err)
		}
		want(t, "a read after the transaction", shows(t, c, eventual, "a"), "1")
	}
}

// A strong read of a type that is not copied has nothing to wait for.
func TestStrongReadOfAnotherType(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, &cache.Options{Types: []storage.UnversionedType{fixture.Type}})
	defer v.hold()()
	other := fixture.Resource("a", "other")
	other.Id.Type.Kind = "Other"
	fixture.Write(t, v.Backend, other)
	if res, err := c.Read(t.Context(), strong, other.Id); err != nil || string(res.GetData().GetValue()) != "other" {
		t.Errorf("a read of another type shows %v, %v", res, err)
	}
	if v.asked() > 0 {
		t.Errorf("%d proofs were asked for, expected none", v.asked())
	}
}

// Types are named one by one: a wildcard would be a type of that name, which nothing has.
func TestWildcardsAreNoTypes(t *testing.T) {
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

// While the store is listed anew, after the point that the list shows, a resource is created and deleted. It stays gone.
func TestOwnLifeWhileListing(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	listing, wrote := make(chan struct{}), make(chan struct{})
	v.listing = func() {
		close(listing)
		<-wrote
	}
	v.end()
	<-listing
	fixture.Remove(t, c, fixture.Write(t, c, fixture.Resource("a", "1")))
	release := v.hold()
	close(wrote)
	fixture.Eventually(t, "the list is the copy", func() bool { return c.Stats().Live })
	want(t, "a read when the store is listed", shows(t, c, eventual, "a"), "nothing")
	v.let(t, 1)
	want(t, "a read when the copy has come by the creation", shows(t, c, eventual, "a"), "nothing")
	release()
	want(t, "a strong read", shows(t, c, strong, "a"), "nothing")
}

// A program that closes the backend under a cache has closed the cache.
func TestClosedBelow(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	if err := v.Backend.Close(); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "the copy has ended", func() bool { return !c.Stats().Live })
	if _, err := c.Read(t.Context(), eventual, a.GetId()); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a read ended with %v, expected ErrClosed", err)
	}
	if _, err := c.List(t.Context(), eventual, fixture.AllTypes, fixture.AllTenancies, ""); !errors.Is(err, storage.ErrClosed) {
		t.Errorf("a list ended with %v, expected ErrClosed", err)
	}
}

// Where watches prove nothing, a list of the database puts every key in doubt; those that it has shown as the copy shows them are not, and
// the others only until a read of the database has shown the same.
func TestReadAfterAListWithoutBookmarks(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, mute{v}, nil)
	fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Write(t, c, fixture.Resource("b", "1"))
	fixture.Eventually(t, "the copy has both", func() bool { return c.Stats().Resources == 2 })
	if all, err := c.List(t.Context(), strong, fixture.Type, fixture.Tenancy, "a"); err != nil || len(all) != 1 {
		t.Fatalf("the list has %v, %v, expected one", all, err)
	}
	for range 10 {
		want(t, "a read of what was listed", shows(t, c, eventual, "a"), "1")
		want(t, "a read of what was not", shows(t, c, eventual, "b"), "1")
	}
	if v.reads != 1 {
		t.Errorf("%d reads went to the database, expected one", v.reads)
	}
}
