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

// shows returns what a read shows: the payload, or "nothing".
func shows(t *testing.T, b storage.Backend, consistency storage.ReadConsistency, name string) string {
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

func want(t *testing.T, what, got, expected string) {
	t.Helper()
	if got != expected {
		t.Errorf("%s shows %q, expected %q", what, got, expected)
	}
}

// rewritten returns a resource with another payload, to be written over it.
func rewritten(res *resourcepb.Resource, payload string) *resourcepb.Resource {
	next := fixture.Resource(res.GetId().GetName(), payload)
	next.Id.Uid, next.Version = res.GetId().GetUid(), res.GetVersion()
	return next
}

// afterProof has a call made while the copy is held back, and lets go once the call waits for proof or is over.
func afterProof(t *testing.T, v *valve, release func(), call func() string) string {
	t.Helper()
	before := v.asked()
	got := make(chan string, 1)
	go func() { got <- call() }()
	fixture.Eventually(t, "the call asks for proof", func() bool { return v.asked() > before || len(got) > 0 })
	release()
	return <-got
}

func TestOwnWritesAreSeenAtOnce(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	defer v.hold()()
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	want(t, "a read after a write", shows(t, c, eventual, "a"), "1")
	a = fixture.Write(t, c, rewritten(a, "2"))
	want(t, "a read after a second write", shows(t, c, eventual, "a"), "2")
	fixture.Remove(t, c, a)
	want(t, "a read after a deletion", shows(t, c, eventual, "a"), "nothing")
	tx, _ := storage.As[storage.Transactor](storage.Backend(c))
	if _, err := tx.Commit(t.Context(), []storage.Op{{Write: fixture.Resource("b", "3")}, {Write: fixture.Resource("c", "4")}}); err != nil {
		t.Fatal(err)
	}
	want(t, "a read after a transaction", shows(t, c, eventual, "b")+shows(t, c, eventual, "c"), "34")
	if v.asked() != 0 || v.reads != 0 {
		t.Errorf("that took %d requests for proof and %d reads of the database, expected none", v.asked(), v.reads)
	}
}

// The copy passes a write, and what another program writes over it, before the write is acknowledged.
func TestEventBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	v.answering = func(err error) error {
		stored, _ := v.Backend.Read(t.Context(), strong, fixture.ID("a"))
		fixture.Write(t, v.Backend, rewritten(stored, "3"))
		fixture.Eventually(t, "the copy has the other write", func() bool { return shows(t, c, eventual, "a") == "3" })
		return err
	}
	fixture.Write(t, c, rewritten(a, "2"))
	want(t, "a read after the answer", shows(t, c, eventual, "a"), "3")
}

func TestAnotherWriteAfterAnOwnOne(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	release := v.hold()
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	fixture.Write(t, v.Backend, rewritten(a, "2"))
	want(t, "a read before the watch", shows(t, c, eventual, "a"), "1")
	release()
	fixture.Eventually(t, "the copy has the other write", func() bool { return shows(t, c, eventual, "a") == "2" })
}

// After an own deletion another program creates the key anew.
func TestAnotherLifeAfterAnOwnDeletion(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	want(t, "a strong read", shows(t, c, strong, "a"), "1")
	release := v.hold()
	fixture.Remove(t, c, a)
	again := fixture.Resource("a", "2")
	again.Id.Uid = "another"
	fixture.Write(t, v.Backend, again)
	want(t, "a read before the watch", shows(t, c, eventual, "a"), "nothing")
	release()
	fixture.Eventually(t, "the copy has the new life", func() bool { return shows(t, c, eventual, "a") == "2" })
}

// A deletion succeeds, and does nothing, where another program has deleted and created the key anew.
func TestDeletionOfWhatIsGone(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	want(t, "a strong read", shows(t, c, strong, "a"), "1")
	release := v.hold()
	fixture.Remove(t, v.Backend, fixture.Write(t, v.Backend, rewritten(a, "more")))
	again := fixture.Resource("a", "2")
	again.Id.Uid = "another"
	again = fixture.Write(t, v.Backend, again)
	fixture.Remove(t, c, a)
	want(t, "a read after the deletion", shows(t, c, eventual, "a"), "nothing")
	fixture.Write(t, v.Backend, rewritten(again, "3"))
	release()
	fixture.Eventually(t, "the copy has the new life", func() bool { return shows(t, c, eventual, "a") == "3" })
}

// A deletion of what the copy does not have yet: its creation must not show afterwards.
func TestDeletionOfWhatTheCopyLacks(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	release := v.hold()
	a := fixture.Write(t, v.Backend, fixture.Resource("a", "1"))
	fixture.Remove(t, c, a)
	got := afterProof(t, v, release, func() string { return shows(t, c, eventual, "a") })
	want(t, "a read after the deletion", got, "nothing")
}

// A deletion of a life that the copy does not have yet: the end of the life before is not what settles it.
func TestDeletionOfANewLife(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	want(t, "a strong read", shows(t, c, strong, "a"), "1")
	release := v.hold()
	fixture.Remove(t, v.Backend, a)
	fixture.Remove(t, c, fixture.Write(t, v.Backend, fixture.Resource("a", "2")))
	v.let(t, 2) // the end of the one, the beginning of the other
	got := afterProof(t, v, release, func() string { return shows(t, c, eventual, "a") })
	want(t, "a read after the deletion", got, "nothing")
}

// The answer to a write is lost: nothing is known of it until a strong read tells.
func TestLostAnswer(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	release := v.hold()
	v.answering = func(error) error { return storage.ErrInconsistent }
	if _, err := c.WriteCAS(t.Context(), fixture.Resource("a", "1")); !errors.Is(err, storage.ErrInconsistent) {
		t.Fatalf("got %v, expected ErrInconsistent", err)
	}
	got := afterProof(t, v, release, func() string { return shows(t, c, strong, "a") })
	want(t, "a strong read", got, "1")
}

// Of two own writes of a key the second one is acknowledged first.
func TestAnswersInTheOtherOrder(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	want(t, "a strong read", shows(t, c, strong, "a"), "1")
	release := v.hold()
	v.answering = func(err error) error {
		stored, _ := v.Backend.Read(t.Context(), strong, fixture.ID("a"))
		fixture.Write(t, c, rewritten(stored, "3"))
		want(t, "a read after the second write", shows(t, c, eventual, "a"), "3")
		return err
	}
	fixture.Write(t, c, rewritten(a, "2"))
	got := afterProof(t, v, release, func() string { return shows(t, c, eventual, "a") })
	want(t, "a read after both", got, "3")
}

// A list is one cut: it does not show an own write without what another program wrote before.
func TestListIsACut(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	release := v.hold()
	fixture.Write(t, v.Backend, fixture.Resource("b", "other"))
	own := fixture.Resource("a", "own")
	own.Owner = fixture.ID("owner")
	own = fixture.Write(t, c, own)
	want(t, "a read", shows(t, c, eventual, "a")+shows(t, c, eventual, "b"), "ownnothing")
	fixture.Write(t, c, rewritten(own, "again")) // what lies below is waited for, too
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

// What a watch through the cache has shown, a read shows.
func TestReadAfterAnEvent(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	w, err := c.WatchList(t.Context(), fixture.AllTypes, fixture.AllTenancies, "a")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	fixture.Next(t, w)
	for _, step := range []struct {
		shown string
		do    func(a *resourcepb.Resource) *resourcepb.Resource
	}{
		{"1", func(*resourcepb.Resource) *resourcepb.Resource {
			return fixture.Write(t, v.Backend, fixture.Resource("a", "1"))
		}},
		{"2", func(a *resourcepb.Resource) *resourcepb.Resource {
			return fixture.Write(t, v.Backend, rewritten(a, "2"))
		}},
		{"nothing", func(a *resourcepb.Resource) *resourcepb.Resource { fixture.Remove(t, v.Backend, a); return nil }},
	} {
		a, _ := v.Backend.Read(t.Context(), strong, fixture.ID("a"))
		release := v.hold()
		step.do(a)
		fixture.Next(t, w)
		got := afterProof(t, v, release, func() string { return shows(t, c, eventual, "a") })
		want(t, "a read after an event", got, step.shown)
	}
}

// While the store is listed anew, after the point that the list shows, an own write is acknowledged. It stays seen.
func TestOwnWriteWhileListing(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	a := fixture.Write(t, c, fixture.Resource("a", "1"))
	want(t, "a strong read", shows(t, c, strong, "a"), "1")
	listing, wrote := make(chan struct{}), make(chan struct{})
	v.listing = func() {
		close(listing)
		<-wrote
	}
	v.end()
	<-listing
	fixture.Write(t, v.Backend, fixture.Resource("b", "other"))
	fixture.Write(t, c, rewritten(a, "2"))
	want(t, "a read while the store is listed", shows(t, c, eventual, "a"), "2")
	release := v.hold()
	close(wrote)
	fixture.Eventually(t, "the list is the copy", func() bool { return c.Stats().Live })
	want(t, "a read when the store is listed", shows(t, c, eventual, "a"), "2")
	release()
	fixture.Eventually(t, "the copy has the other write", func() bool { return shows(t, c, eventual, "b") == "other" })
	want(t, "a strong read", shows(t, c, strong, "a"), "2")
}

// A strong read shows what was acknowledged to others, and many of them ask twice at most.
func TestStrongReadsShareProof(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, v, nil)
	release := v.hold()
	fixture.Write(t, v.Backend, fixture.Resource("a", "1"))
	const readers = 64
	got := make(chan string, readers)
	for range readers {
		go func() { got <- shows(t, c, strong, "a") }()
	}
	fixture.Eventually(t, "proof is asked for", func() bool { return v.asked() > 0 })
	release()
	for range readers {
		want(t, "a strong read", <-got, "1")
	}
	if v.reads != 0 {
		t.Errorf("%d reads went to the database, expected none", v.reads)
	}
}

func TestCloseEndsWaiting(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c, err := cache.New(t.Context(), v, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer v.hold()()
	fixture.Write(t, v.Backend, fixture.Resource("a", "1"))
	ended := make(chan error, 1)
	go func() {
		_, err := c.Read(context.Background(), strong, fixture.ID("a"))
		ended <- err
	}()
	fixture.Eventually(t, "the read waits", func() bool { return v.asked() > 0 })
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, storage.ErrClosed) {
		t.Errorf("the read ended with %v, expected ErrClosed", err)
	}
}

// Where watches prove nothing, strong reads go to the database, and eventual ones are not older.
func TestWithoutBookmarks(t *testing.T) {
	t.Parallel()
	v := newValve(t)
	c := over(t, mute{v}, nil)
	release := v.hold()
	a := fixture.Write(t, v.Backend, fixture.Resource("a", "1"))
	want(t, "an eventual read before", shows(t, c, eventual, "a"), "nothing")
	want(t, "a strong read", shows(t, c, strong, "a"), "1")
	want(t, "an eventual read after it", shows(t, c, eventual, "a"), "1")
	fixture.Remove(t, v.Backend, a)
	want(t, "a strong read of what is gone", shows(t, c, strong, "a"), "nothing")
	release()
	for range 1000 {
		want(t, "an eventual read of what is gone", shows(t, c, eventual, "a"), "nothing")
	}
}
