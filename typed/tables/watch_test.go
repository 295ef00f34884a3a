package tables_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/typed/tables"
)

// Next checks its context and Close before it returns an event. Otherwise a reader that is slower than the writers could never be stopped.
func TestWatchNextPrefersErrors(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		w, err := s.ViewAndWatch(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		create(ctx, t, s, map[string]int64{"a": 1, "b": 2, "c": 3})
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		for range 2 { // before the commit is read, and in the middle of it
			if _, err := w.Next(cancelled); !errors.Is(err, context.Canceled) {
				t.Errorf("Next after the end of the context: %v, expected Canceled", err)
			}
			if ev, err := w.Next(ctx); err != nil || !ev.More {
				t.Fatalf("the next event is %v, %v", ev, err)
			}
		}
		w.Close()
		for _, ctx := range []context.Context{ctx, cancelled} {
			if _, err := w.Next(ctx); !errors.Is(err, storage.ErrWatchClosed) {
				t.Errorf("after Close of the watch: %v, expected ErrWatchClosed", err)
			}
		}
		w, err = s.ViewAndWatch(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		create(ctx, t, s, map[string]int64{"d": 1, "e": 2})
		if _, err := w.Next(ctx); err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Next(ctx); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrClosed) {
			t.Errorf("after Close of the store: %v, expected ErrWatchClosed and ErrClosed", err)
		}
	})
}

// A program can resume from the cursors of changes that were found by a relist.
func TestCursorAfterRelist(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		other := open(t, url, numbers)
		b := &unwatchable{Backend: fixture.Open(t, url), openFailed: make(chan struct{}, 1), writeRefused: make(chan struct{}, 10)}
		s, err := tables.Open(ctx, b, numbers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		w, err := s.ViewAndWatch(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		b.disabled.Store(true)
		create(ctx, t, other, map[string]int64{"a": 1})
		<-b.openFailed
		b.disabled.Store(false)
		ev, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		create(ctx, t, other, map[string]int64{"b": 2})
		resumer, _ := storage.As[storage.Resumer](b.Backend)
		resumed, err := resumer.WatchFrom(ctx, fixture.AllTypes, fixture.AllTenancies, "", ev.Cursor)
		if err != nil {
			t.Fatalf("resume from the cursor %q: %v", ev.Cursor, err)
		}
		defer resumed.Close()
		if next := fixture.Next(t, resumed).GetUpsert().GetResource().GetId().GetName(); next != "b" {
			t.Errorf("the next change is of %q, expected b", next)
		}
	})
}
