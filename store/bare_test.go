package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/store"
)

// bare is a backend whose watches are no Bookmarkers, as DynamoDB's. The newest one can be held up, and ended.
type bare struct {
	storage.Backend

	mu     sync.Mutex
	newest *bareWatch
	opened chan struct{} // gets something for each watch that is opened
}

func newBare(b storage.Backend) *bare { return &bare{Backend: b, opened: make(chan struct{}, 100)} }

// As implements what [storage.As] asks a layer.
func (b *bare) As(target any) bool {
	transactor, ok := target.(*storage.Transactor)
	if ok {
		*transactor, ok = storage.As[storage.Transactor](b.Backend)
	}
	return ok
}

// WatchList implements storage.Backend.
func (b *bare) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newest = &bareWatch{inner: w}
	b.newest.living, b.newest.end = context.WithCancel(context.WithoutCancel(ctx))
	b.opened <- struct{}{}
	return b.newest, nil
}

// watch returns the newest watch.
func (b *bare) watch() *bareWatch {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.newest
}

type bareWatch struct {
	inner  storage.Watch
	living context.Context
	end    context.CancelFunc

	mu   sync.Mutex
	held bool // it returns nothing until it is ended
}

// hold has the watch return nothing until it is ended.
func (w *bareWatch) hold() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held = true
}

// Next implements storage.Watch.
func (w *bareWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(w.living, cancel)()
	ev, err := w.inner.Next(both)
	w.mu.Lock()
	held := w.held
	w.mu.Unlock()
	if held {
		<-both.Done()
	}
	if w.living.Err() != nil {
		return nil, fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrCompacted)
	}
	return ev, err
}

// Cursor implements storage.Watch.
func (w *bareWatch) Cursor() string { return w.inner.Cursor() }

// Close implements storage.Watch.
func (w *bareWatch) Close() {
	w.end()
	w.inner.Close()
}

// mark stores what a program leaves that is killed in the middle of a deletion.
func mark(ctx context.Context, t *testing.T, b storage.Backend, name string) {
	t.Helper()
	res := storetest.Resource("marked", "")
	res.Id = id(name)
	res.Id.Uid, res.Metadata = "u", map[string]string{store.DeletedMark: "true"}
	if _, err := b.WriteCAS(ctx, res); err != nil {
		t.Fatal(err)
	}
}

// What another program has left marked as deleted is as absent as anything else to who only reads.
func TestMarksWithoutBookmarks(t *testing.T) {
	onEach(t, func(ctx context.Context, t *testing.T, url string) {
		b := newBare(storetest.Open(t, url))
		s, err := store.Open(ctx, b, numbers)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		mark(ctx, t, b, "marked")
		watch, err := s.ViewAndWatch(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer watch.Close()
		create(ctx, t, s, map[string]int64{"after": 1})
		for name := ""; name != "after"; {
			ev, err := watch.Next(ctx)
			if err != nil {
				t.Fatal(err)
			}
			c, _ := numbers.Event(ev)
			name = c.New.ID.GetName()
		}
		read := func(tx *store.Tx) error {
			_, err := numbers.Get(tx, id("marked"))
			return err
		}
		if err := s.Update(ctx, read); !errors.Is(err, storage.ErrNotFound) || ctx.Err() != nil {
			t.Errorf("read: %v, %v", err, ctx.Err())
		}
		update(ctx, t, s, func(tx *store.Tx) error { return numbers.Put(tx, put("marked", 1)) })
		update(ctx, t, s, read)
	})
}
