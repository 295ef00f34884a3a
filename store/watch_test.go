package store_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
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
