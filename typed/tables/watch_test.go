package tables_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/typed/tables"
)

// Next looks at its context and at Close before it returns what it has: a reader that is slower than the writers would never end.
func TestEndsOfAWatch(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		s := open(t, url, numbers)
		w, err := s.ViewAndWatch(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		create(ctx, t, s, map[string]int64{"a": 1, "b": 2, "c": 3})
		over, cancel := context.WithCancel(ctx)
		cancel()
		for range 2 { // before the commit is read, and within it
			if _, err := w.Next(over); !errors.Is(err, context.Canceled) {
				t.Errorf("the context is over: %v", err)
			}
			if ev, err := w.Next(ctx); err != nil || !ev.More {
				t.Fatalf("what was not consumed: %v, %v", ev, err)
			}
		}
		w.Close()
		for _, ctx := range []context.Context{ctx, over} {
			if _, err := w.Next(ctx); !errors.Is(err, storage.ErrWatchClosed) {
				t.Errorf("the watch is closed: %v", err)
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
			t.Errorf("the store is closed: %v", err)
		}
	})
}

// What has changed while there was no watch, which a list shows in the end, has a cursor too: a program goes on from there.
func TestCursorOfWhatWasListed(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		other := open(t, url, numbers)
		b := &blind{Backend: fixture.Open(t, url), ended: make(chan struct{}, 1), refused: make(chan struct{}, 10)}
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
		b.shut.Store(true)
		create(ctx, t, other, map[string]int64{"a": 1})
		<-b.ended
		b.shut.Store(false)
		ev, err := w.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		create(ctx, t, other, map[string]int64{"b": 2})
		resumer, _ := storage.As[storage.Resumer](b.Backend)
		on, err := resumer.WatchFrom(ctx, fixture.AllTypes, fixture.AllTenancies, "", ev.Cursor)
		if err != nil {
			t.Fatalf("go on from the cursor %q: %v", ev.Cursor, err)
		}
		defer on.Close()
		if next := fixture.Next(t, on).GetUpsert().GetResource().GetId().GetName(); next != "b" {
			t.Errorf("the next change is of %q, expected b", next)
		}
	})
}
