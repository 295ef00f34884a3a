package cache_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

const (
	eventual = storage.EventualConsistency
	strong   = storage.StrongConsistency
)

// readData reads a resource and returns its payload, or "nothing".
func readData(t *testing.T, b storage.Backend, consistency storage.ReadConsistency, name string) string {
	t.Helper()
	id := fixture.ID(name)
	id.Uid = ""
	res, err := b.Read(fixture.Context(t), consistency, id)
	if errors.Is(err, storage.ErrNotFound) {
		return "nothing"
	}
	if err != nil {
		t.Error(err)
		return err.Error()
	}
	return string(res.GetData().GetValue())
}

func expect(t *testing.T, what, got, expected string) {
	t.Helper()
	if got != expected {
		t.Errorf("%s returned %q, expected %q", what, got, expected)
	}
}

// updated returns a resource with a new payload that replaces the given one.
func updated(res *resourcepb.Resource, payload string) *resourcepb.Resource {
	next := fixture.Resource(res.GetId().GetName(), payload)
	next.Id.Uid, next.Version = res.GetId().GetUid(), res.GetVersion()
	return next
}

// callBeforeRelease starts a call while the gate blocks events. It opens the gate once the call has requested a bookmark or returned.
func callBeforeRelease(t *testing.T, g *gate, release func(), call func() string) string {
	t.Helper()
	before := g.bookmarkRequests()
	got := make(chan string, 1)
	go func() { got <- call() }()
	fixture.Eventually(t, "the call requests a bookmark", func() bool { return g.bookmarkRequests() > before || len(got) > 0 })
	release()
	return <-got
}

func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	defer g.hold()()
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	expect(t, "a read after a write", readData(t, c, eventual, "a"), "1")
	a = fixture.Write(t, c, updated(a, "2"))
	expect(t, "a read after a second write", readData(t, c, eventual, "a"), "2")
	fixture.Remove(t, c, a)
	expect(t, "a read after a deletion", readData(t, c, eventual, "a"), "nothing")
	tx, _ := storage.As[storage.Transactor](storage.Backend(c))
	if _, err := tx.Commit(t.Context(), []storage.Op{{Write: fixture.Resource("b", "3")}, {Write: fixture.Resource("c", "4")}}); err != nil {
		t.Fatal(err)
	}
	expect(t, "a read after a transaction", readData(t, c, eventual, "b")+readData(t, c, eventual, "c"), "34")
	if g.bookmarkRequests() != 0 || g.reads != 0 {
		t.Errorf("these calls made %d bookmark requests and %d reads of the database, expected none", g.bookmarkRequests(), g.reads)
	}
}

// The watch delivers a write, and another program's write on top of it, before the first one is acknowledged.
func TestEventBeforeAcknowledgement(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	g.beforeAck = func(err error) error {
		stored, _ := g.Backend.Read(t.Context(), strong, fixture.ID("a"))
		fixture.Write(t, g.Backend, updated(stored, "3"))
		fixture.Eventually(t, "the copy has the other write", func() bool { return readData(t, c, eventual, "a") == "3" })
		return err
	}
	fixture.Write(t, c, updated(a, "2"))
	expect(t, "a read after the answer", readData(t, c, eventual, "a"), "3")
}

func TestOtherWriteAfterLocalWrite(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	release := g.hold()
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Write(t, g.Backend, updated(a, "2"))
	expect(t, "a read before the watch", readData(t, c, eventual, "a"), "1")
	release()
	fixture.Eventually(t, "the copy has the other write", func() bool { return readData(t, c, eventual, "a") == "2" })
}

// After a local deletion, another program creates the key again.
func TestRecreationAfterLocalDelete(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	expect(t, "a strong read", readData(t, c, strong, "a"), "1")
	release := g.hold()
	fixture.Remove(t, c, a)
	again := fixture.Resource("a", "2")
	again.Id.Uid = "another"
	fixture.Write(t, g.Backend, again)
	expect(t, "a read before the watch", readData(t, c, eventual, "a"), "nothing")
	release()
	fixture.Eventually(t, "the copy has the new resource", func() bool { return readData(t, c, eventual, "a") == "2" })
}

// A deletion succeeds without effect if another program has deleted and recreated the key.
func TestDeleteOfDeletedResource(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	expect(t, "a strong read", readData(t, c, strong, "a"), "1")
	release := g.hold()
	fixture.Remove(t, g.Backend, fixture.Write(t, g.Backend, updated(a, "more")))
	again := fixture.Resource("a", "2")
	again.Id.Uid = "another"
	again = fixture.Write(t, g.Backend, again)
	fixture.Remove(t, c, a)
	expect(t, "a read after the deletion", readData(t, c, eventual, "a"), "nothing")
	fixture.Write(t, g.Backend, updated(again, "3"))
	release()
	fixture.Eventually(t, "the copy has the new resource", func() bool { return readData(t, c, eventual, "a") == "3" })
}

// A program deletes a resource that the copy does not have yet. Its creation must not appear afterwards.
func TestDeleteOfResourceMissingInCopy(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	release := g.hold()
	a := fixture.Write(t, g.Backend, fixture.Resource("a", "1"))
	fixture.Remove(t, c, a)
	got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
	expect(t, "a read after the deletion", got, "nothing")
}

// A program deletes a recreated resource that the copy does not have yet. The deletion event of its predecessor does not confirm that.
func TestDeleteOfRecreatedResource(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	expect(t, "a strong read", readData(t, c, strong, "a"), "1")
	release := g.hold()
	fixture.Remove(t, g.Backend, a)
	fixture.Remove(t, c, fixture.Write(t, g.Backend, fixture.Resource("a", "2")))
	g.passEvents(t, 2) // the deletion of the first one, the creation of the second one
	got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
	expect(t, "a read after the deletion", got, "nothing")
}

// After a lost answer, the outcome of a write is unknown until a strong read.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	release := g.hold()
	g.beforeAck = func(error) error { return storage.ErrInconsistent }
	if _, err := c.WriteCAS(t.Context(), fixture.Resource("a", "1")); !errors.Is(err, storage.ErrInconsistent) {
		t.Fatalf("got %v, expected ErrInconsistent", err)
	}
	got := callBeforeRelease(t, g, release, func() string { return readData(t, c, strong, "a") })
	expect(t, "a strong read", got, "1")
}

// The second of two local writes of a key is acknowledged first.
func TestReorderedAcknowledgements(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	expect(t, "a strong read", readData(t, c, strong, "a"), "1")
	release := g.hold()
	g.beforeAck = func(err error) error {
		stored, _ := g.Backend.Read(t.Context(), strong, fixture.ID("a"))
		fixture.Write(t, c, updated(stored, "3"))
		expect(t, "a read after the second write", readData(t, c, eventual, "a"), "3")
		return err
	}
	fixture.Write(t, c, updated(a, "2"))
	got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
	expect(t, "a read after both", got, "3")
}

// A list is one cut: it does not return a local write without an earlier write of another program.
func TestListIsConsistentCut(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	release := g.hold()
	fixture.Write(t, g.Backend, fixture.Resource("b", "other"))
	first := fixture.Resource("a", "local")
	first.Owner = fixture.ID("owner")
	first = fixture.Write(t, c, first)
	expect(t, "a read", readData(t, c, eventual, "a")+readData(t, c, eventual, "b"), "localnothing")
	fixture.Write(t, c, updated(first, "again")) // the list also waits for the covered write
	listed, owned := make(chan int, 1), make(chan int, 1)
	go func() {
		all, err := c.List(fixture.Context(t), eventual, fixture.AllTypes, fixture.AllTenancies, "")
		if err != nil {
			t.Error(err)
		}
		listed <- len(all)
	}()
	go func() {
		ids, err := c.OwnerReferences(fixture.Context(t), fixture.ID("owner"))
		if err != nil {
			t.Error(err)
		}
		owned <- len(ids)
	}()
	release()
	if n := <-listed; n != 2 {
		t.Errorf("the list has %d resources, expected 2", n)
	}
	if n := <-owned; n != 0 {
		t.Errorf("the owner has %d references, expected none: the second write has no owner", n)
	}
}

// A read is not older than an event of a watch through the cache.
func TestReadAfterWatchEvent(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	w, err := c.WatchList(t.Context(), fixture.AllTypes, fixture.AllTenancies, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fixture.Next(t, w)
	for _, step := range []struct {
		data string
		do   func(a *resourcepb.Resource) *resourcepb.Resource
	}{
		{"1", func(*resourcepb.Resource) *resourcepb.Resource {
			return fixture.Write(t, g.Backend, fixture.Resource("a", "1"))
		}},
		{"2", func(a *resourcepb.Resource) *resourcepb.Resource {
			return fixture.Write(t, g.Backend, updated(a, "2"))
		}},
		{"nothing", func(a *resourcepb.Resource) *resourcepb.Resource { fixture.Remove(t, g.Backend, a); return nil }},
	} {
		a, _ := g.Backend.Read(t.Context(), strong, fixture.ID("a"))
		release := g.hold()
		step.do(a)
		fixture.Next(t, w)
		got := callBeforeRelease(t, g, release, func() string { return readData(t, c, eventual, "a") })
		expect(t, "a read after an event", got, step.data)
	}
}

// A local write is acknowledged during a relist, after the list's position. It stays visible.
func TestLocalWriteDuringRelist(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	expect(t, "a strong read", readData(t, c, strong, "a"), "1")
	listing, wrote := make(chan struct{}), make(chan struct{})
	g.beforeSnapshot = func() {
		close(listing)
		<-wrote
	}
	g.endWatches()
	<-listing
	fixture.Write(t, g.Backend, fixture.Resource("b", "other"))
	fixture.Write(t, c, updated(a, "2"))
	expect(t, "a read while the store is listed", readData(t, c, eventual, "a"), "2")
	release := g.hold()
	close(wrote)
	fixture.Eventually(t, "the list is the copy", func() bool { return c.Stats().Live })
	expect(t, "a read when the store is listed", readData(t, c, eventual, "a"), "2")
	release()
	fixture.Eventually(t, "the copy has the other write", func() bool { return readData(t, c, eventual, "b") == "other" })
	expect(t, "a strong read", readData(t, c, strong, "a"), "2")
}

// A strong read returns the writes of other programs that were acknowledged before it. Many concurrent ones need at most two bookmark requests.
func TestStrongReadsShareBarrier(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	release := g.hold()
	fixture.Write(t, g.Backend, fixture.Resource("a", "1"))
	const readers = 64
	got := make(chan string, readers)
	for range readers {
		go func() { got <- readData(t, c, strong, "a") }()
	}
	fixture.Eventually(t, "a bookmark is requested", func() bool { return g.bookmarkRequests() > 0 })
	release()
	for range readers {
		expect(t, "a strong read", <-got, "1")
	}
	if g.reads != 0 {
		t.Errorf("%d reads went to the database, expected none", g.reads)
	}
}

func TestCloseUnblocksReads(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c, err := cache.New(t.Context(), g, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer g.hold()()
	fixture.Write(t, g.Backend, fixture.Resource("a", "1"))
	ended := make(chan error, 1)
	go func() {
		_, err := c.Read(context.Background(), strong, fixture.ID("a"))
		ended <- err
	}()
	fixture.Eventually(t, "the read waits", func() bool { return g.bookmarkRequests() > 0 })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, storage.ErrClosed) {
		t.Errorf("the read ended with %v, expected ErrClosed", err)
	}
}

// Without bookmarks, strong reads go to the database, and later eventual reads are not older.
func TestWithoutBookmarks(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, noBookmarks{g}, nil)
	release := g.hold()
	a := fixture.Write(t, g.Backend, fixture.Resource("a", "1"))
	expect(t, "an eventual read before", readData(t, c, eventual, "a"), "nothing")
	expect(t, "a strong read", readData(t, c, strong, "a"), "1")
	expect(t, "an eventual read after it", readData(t, c, eventual, "a"), "1")
	fixture.Remove(t, g.Backend, a)
	expect(t, "a strong read of the deleted resource", readData(t, c, strong, "a"), "nothing")
	release()
	for range 1000 {
		expect(t, "an eventual read of the deleted resource", readData(t, c, eventual, "a"), "nothing")
	}
}

// A bookmark confirms only the writes that were acknowledged before its request.
func TestBookmarkKeepsLaterWrite(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	release := g.hold()
	read := make(chan string, 1)
	go func() { read <- readData(t, c, strong, "b") }()
	fixture.Eventually(t, "the bookmark is blocked", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.blockedEvents > 0
	})
	fixture.Write(t, c, fixture.Resource("a", "1"))
	g.passEvents(t, 1)
	expect(t, "the strong read", <-read, "nothing")
	expect(t, "a read before the watch", readData(t, c, eventual, "a"), "1")
	release()
}

// A resource that was deleted while the copy had no watch is absent after the relist.
func TestDeletionBeforeRelist(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	expect(t, "a strong read", readData(t, c, strong, "a"), "1")
	release := g.hold()
	fixture.Remove(t, g.Backend, a)
	g.endWatches()
	release()
	fixture.Eventually(t, "the relist removes the resource", func() bool { return c.Stats().Resources == 0 })
	expect(t, "a read after the relist", readData(t, c, eventual, "a"), "nothing")
}

// A strong read whose bookmark was requested from a watch that ended gets its answer from the next watch.
func TestStrongReadSurvivesWatchEnd(t *testing.T) {
	t.Parallel()
	g := newGate(t)
	c := newCache(t, g, nil)
	release := g.hold()
	fixture.Write(t, g.Backend, fixture.Resource("a", "1"))
	read := make(chan string, 1)
	go func() { read <- readData(t, c, strong, "a") }()
	fixture.Eventually(t, "a bookmark is requested", func() bool { return g.bookmarkRequests() > 0 })
	g.endWatches()
	release()
	expect(t, "the strong read", <-read, "1")
}
