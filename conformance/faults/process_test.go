package faults

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	_ "github.com/ashlar-dev/storage/sqlite"
)

func TestMain(m *testing.M) {
	if !ServeProcess() {
		os.Exit(m.Run())
	}
}

// A program without ServeProcess must not start itself again and again: the started process would run its tests, and these would
// start a further process.
func TestForgottenServeProcessEnds(t *testing.T) {
	t.Setenv(processEnv, "1")
	_, err := NewProcesses("memory:").Open(t.Context())
	if err == nil || !strings.Contains(err.Error(), "ServeProcess") {
		t.Errorf("a process that was started to serve has started another process: %v", err)
	}
}

// apart opens a handle in another process, and a watch of it.
func apart(t *testing.T) (*process, storage.Watch) {
	t.Helper()
	b, err := NewProcesses("sqlite://" + filepath.ToSlash(filepath.Join(t.TempDir(), "store.db"))).Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	w, err := b.WatchList(t.Context(), thing, allTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return b.(*process), w
}

func nextOf(t *testing.T, w storage.Watch) *resourcepb.WatchEvent {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	ev, err := w.Next(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return ev
}

func put(t *testing.T, b storage.Backend, name string) *resourcepb.Resource {
	t.Helper()
	res, err := b.WriteCAS(t.Context(), &resourcepb.Resource{Id: idOf("n", name, "u")})
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// A watch in a killed process continues in the next process without a gap or a repeat, and its outstanding bookmark comes.
func TestKilledProcess(t *testing.T) {
	t.Parallel()
	b, w := apart(t)
	if nextOf(t, w).GetEndOfSnapshot() == nil {
		t.Fatal("the store is not empty")
	}
	put(t, b, "a")
	put(t, b, "b")
	if got := nextOf(t, w).GetUpsert().GetResource().GetId().GetName(); got != "a" {
		t.Fatalf("got %q", got)
	}
	if err := w.(storage.Bookmarker).Bookmark(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := generation(b)
	b.kill()
	short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := b.Read(short, storage.StrongConsistency, idOf("n", "a", "")); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("a read where there is no process: %v", err)
	}
	if err := b.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if generation(b) == before {
		t.Error("the next process is no other one")
	}
	if got := nextOf(t, w).GetUpsert().GetResource().GetId().GetName(); got != "b" {
		t.Errorf("got %q", got)
	}
	if ev := nextOf(t, w); ev.GetBookmark() == nil {
		t.Errorf("got %v, want the requested bookmark", ev)
	}
}

// While a watch moves from its cursor to another watch in the next process, it returns nothing: the other watch would return it again.
func TestNoEventDuringRedial(t *testing.T) {
	t.Parallel()
	b, opened := apart(t)
	w := opened.(bookmarkingWatch)
	nextOf(t, w) // the end of the snapshot
	put(t, b, "a")
	moving := &redial{endCh: make(chan struct{})}
	w.redial = moving
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if ev, err := w.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("got %v, %v", ev, err)
	}
	w.open.Method = "resume"
	if _, err := w.dial(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.redial = nil
	close(moving.endCh)
	put(t, b, "b")
	for _, name := range []string{"a", "b"} {
		if got := nextOf(t, w).GetUpsert().GetResource().GetId().GetName(); got != name {
			t.Errorf("got %q, expected %q", got, name)
		}
	}
}

// A bookmark that is requested while the watch moves to the next process is requested there once.
func TestBookmarkDuringRedial(t *testing.T) {
	t.Parallel()
	b, opened := apart(t)
	w := opened.(bookmarkingWatch)
	nextOf(t, w) // the end of the snapshot
	b.kill()
	if err := b.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.open.Method = "resume"
	again, err := w.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Bookmark(t.Context()); err != nil {
		t.Fatal(err)
	}
	if again {
		t.Error("the request of a bookmark would be repeated, although the next process gets it")
	}
	if got := nextOf(t, w).GetBookmark().GetRequest(); got != 1 {
		t.Errorf("a bookmark answers request %d, expected 1", got)
	}
}

// A program of an older version does not number the requests that a bookmark answers.
func TestBookmarkWithoutNumber(t *testing.T) {
	t.Parallel()
	w := &processWatch{requests: 2, earlierRequests: 1, bookmarkOutstanding: true}
	mark := &resourcepb.WatchEvent_Bookmark{}
	w.addBookmark(mark)
	if mark.Request != 2 || w.bookmarkOutstanding {
		t.Errorf("the bookmark answers request %d, and another one is outstanding: %t", mark.Request, w.bookmarkOutstanding)
	}
}

// Errors keep their sentinels and operations their index on the way from a process.
func TestProcessErrors(t *testing.T) {
	t.Parallel()
	b, _ := apart(t)
	stored := put(t, b, "a")
	if _, err := b.Read(t.Context(), storage.StrongConsistency, idOf("n", "b", "")); !errors.Is(err, storage.ErrNotFound) {
		t.Errorf("a read of nothing: %v", err)
	}
	_, err := processTransactor{b}.Commit(t.Context(), []storage.Op{
		{Check: idOf("n", "a", "u"), Version: stored.Version}, {Write: &resourcepb.Resource{Id: idOf("n", "b", "u"), Version: "none"}},
	})
	var op *storage.OpError
	if !errors.As(err, &op) || op.Index != 1 || !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("a transaction that is refused: %v", err)
	}
	results, err := processTransactor{b}.Commit(t.Context(), []storage.Op{{Delete: stored.Id, Version: stored.Version}, {Write: &resourcepb.Resource{Id: idOf("n", "b", "u")}}})
	if err != nil || len(results) != 2 || results[0] != nil || results[1].GetVersion() == "" {
		t.Errorf("a transaction: %v, %v", results, err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.WriteCAS(over, &resourcepb.Resource{Id: idOf("n", "c", "u")}); !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("a write with a context that is over: %v", err)
	}
}
