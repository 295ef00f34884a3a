package moved_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrate"
	"github.com/ashlar-dev/storage/moved"
	"github.com/ashlar-dev/storage/resourcepb"
)

// move migrates a store to another URL.
func move(t *testing.T, from, to string) {
	t.Helper()
	o := &migrate.Options{From: migrate.Name(from), To: migrate.Name(to), Live: true, CutoverLag: time.Hour}
	if _, err := migrate.Run(fixture.Context(t), fixture.Open(t, from), fixture.Open(t, to), o); err != nil {
		t.Fatal(err)
	}
}

// A program whose URL leads to another store than the one that the old store has moved to does not use it: it would find no data, and write beside
// the programs that use the right one.
func TestWrongStore(t *testing.T) {
	t.Parallel()
	for name, wrong := range map[string]func(t *testing.T, old string) string{
		"an empty store": func(t *testing.T, _ string) string { return memoryURL(t) },
		"the old store":  func(_ *testing.T, old string) string { return old },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := sqliteURL(t)
			first := fixture.Open(t, old)
			written := fixture.Write(t, first, thing("a"))
			move(t, old, memoryURL(t))
			var opened atomic.Int64
			store := moved.New(fixture.Open(t, old), func(ctx context.Context, _ *storage.MovedError) (storage.Backend, error) {
				opened.Add(1)
				return storage.Open(ctx, wrong(t, old))
			})
			defer store.Close()
			ctx := fixture.Context(t)
			if res, err := store.Read(ctx, storage.StrongConsistency, written.Id); !errors.Is(err, storage.ErrMoved) {
				t.Errorf("a read returned %v, %v, expected an error that says where the store is", res, err)
			}
			if n := opened.Load(); n != 1 {
				t.Errorf("one call has opened %d stores", n)
			}
			if _, err := store.WriteCAS(ctx, thing("b")); !errors.Is(err, storage.ErrMoved) {
				t.Errorf("a write: %v", err)
			}
		})
	}
}

// Close ends the calls that wait for the next store.
func TestCloseWhileFollowing(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		call  func(ctx context.Context, b *moved.Backend, w storage.Watch) error
		close func(b *moved.Backend, w storage.Watch)
		want  error
	}{
		"a watch is closed": {
			func(ctx context.Context, _ *moved.Backend, w storage.Watch) error { return last(ctx, w) },
			func(_ *moved.Backend, w storage.Watch) { w.Close() }, storage.ErrWatchClosed,
		},
		"the backend of a watch is closed": {
			func(ctx context.Context, _ *moved.Backend, w storage.Watch) error { return last(ctx, w) },
			func(b *moved.Backend, _ storage.Watch) { _ = b.Close() }, storage.ErrWatchClosed,
		},
		"the backend of a read is closed": {
			func(ctx context.Context, b *moved.Backend, _ storage.Watch) error {
				_, err := b.Read(ctx, storage.StrongConsistency, thing("a").Id)
				return err
			},
			func(b *moved.Backend, _ storage.Watch) { _ = b.Close() }, storage.ErrClosed,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := memoryURL(t)
			first, err := storage.Open(fixture.Context(t), old)
			if err != nil {
				t.Fatal(err)
			}
			resolving := make(chan struct{}, 10)
			store := moved.New(first, func(ctx context.Context, _ *storage.MovedError) (storage.Backend, error) {
				resolving <- struct{}{}
				<-ctx.Done() // a database that does not answer
				return nil, ctx.Err()
			})
			w, err := store.WatchList(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "")
			if err != nil {
				t.Fatal(err)
			}
			move(t, old, memoryURL(t))
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- end.call(ctx, store, w) }()
			<-resolving
			end.close(store, w)
			select {
			case err := <-ended:
				if !errors.Is(err, end.want) {
					t.Errorf("got %v, expected %v", err, end.want)
				}
			case <-time.After(fixture.Timeout):
				t.Error("the call has not ended")
			}
			cancel()
			w.Close()
			_ = store.Close()
		})
	}
}

// last reads a watch to its end.
func last(ctx context.Context, w storage.Watch) error {
	for {
		if _, err := w.Next(ctx); err != nil {
			return err
		}
	}
}

// A closed watch does not open the next store.
func TestClosedWatchStaysClosed(t *testing.T) {
	t.Parallel()
	old := memoryURL(t)
	first := fixture.Open(t, old)
	refuse := errors.New("not now")
	var tries atomic.Int64
	store := moved.New(first, func(context.Context, *storage.MovedError) (storage.Backend, error) {
		tries.Add(1)
		return nil, refuse
	})
	w, err := store.WatchList(fixture.Context(t), fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	move(t, old, memoryURL(t))
	if err := last(fixture.Context(t), w); !errors.Is(err, refuse) {
		t.Fatal(err)
	}
	before := tries.Load()
	w.Close()
	if _, err := w.Next(fixture.Context(t)); !errors.Is(err, storage.ErrWatchClosed) || tries.Load() != before {
		t.Errorf("got %v, after %d more tries to open the next store", err, tries.Load()-before)
	}
}

// A deletion or a check that matches the next store is not refused for the last state of the old one.
func TestRefusalsOfTheOldStore(t *testing.T) {
	t.Parallel()
	for kind, url := range map[string]func(testing.TB) string{"memory": memoryURL, "SQLite": sqliteURL} {
		testRefusals(t, kind, url)
	}
}

// testRefusals tests the refusals of an old store in a database.
func testRefusals(t *testing.T, kind string, url func(testing.TB) string) {
	for name, run := range map[string]func(ctx context.Context, b *moved.Backend, now *resourcepb.Resource) error{
		"a deletion": func(ctx context.Context, b *moved.Backend, now *resourcepb.Resource) error {
			return b.DeleteCAS(ctx, now.Id, now.Version)
		},
		"a check": func(ctx context.Context, b *moved.Backend, now *resourcepb.Resource) error {
			_, err := b.Commit(ctx, []storage.Op{{Check: now.Id, Version: now.Version}})
			return err
		},
		"a deletion and a check": func(ctx context.Context, b *moved.Backend, now *resourcepb.Resource) error {
			_, err := b.Commit(ctx, []storage.Op{{Delete: now.Id, Version: now.Version}, {Check: thing("none").Id}})
			return err
		},
	} {
		t.Run(kind+", "+name, func(t *testing.T) {
			t.Parallel()
			old, target := url(t), memoryURL(t)
			fixture.Write(t, fixture.Open(t, old), thing("a"))
			store := moved.New(fixture.Open(t, old), func(context.Context, *storage.MovedError) (storage.Backend, error) {
				return fixture.Open(t, target), nil
			})
			move(t, old, target)
			to := fixture.Open(t, target)
			changed := thing("a")
			changed.Version, changed.Generation = fixture.Stored(t, to, changed.Id).Version, "2"
			if err := run(fixture.Context(t), store, fixture.Write(t, to, changed)); err != nil {
				t.Error(err)
			}
		})
	}
}

// A call whose context ends while the store is closed for a move returns both reasons.
func TestContextEndsDuringTheMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmem.New(nil)
		store := moved.New(b, func(context.Context, *storage.MovedError) (storage.Backend, error) {
			return nil, errors.New("there is no move")
		})
		defer store.Close()
		mover, ok := storage.As[driver.Mover](storage.Backend(b))
		if !ok {
			t.Fatal("memory cannot be closed")
		}
		if err := mover.SetFence(t.Context(), new("")); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := store.WriteCAS(ctx, thing("a")); !errors.Is(err, storage.ErrFenced) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, expected ErrFenced and DeadlineExceeded", err)
		}
		if _, err := store.WriteCAS(t.Context(), thing("a")); !errors.Is(err, storage.ErrFenced) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, expected ErrFenced alone", err)
		}
	})
}
