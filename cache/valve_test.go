package cache_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/cache"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// valve is a backend whose watches can be held back and ended, and whose answers to writes come when a test says so. Only watches of all
// names are held back: those of copies.
type valve struct {
	storage.Backend
	mu        sync.Mutex
	held      chan struct{}     // closed when events flow again; nil while they do
	waiting   int               // counts events that had to wait
	allowed   int               // events that pass nevertheless
	ended     chan struct{}     // closed when the watches end
	bookmarks int               // how often proof was asked for
	reads     int               // that went to the database
	away      int               // how many reads of the database fail next
	why       error             // of that
	answering func(error) error // called, once, between a write and its answer
	listing   func()            // called, once, between the point of a list and its return
}

func newValve(t *testing.T) *valve {
	t.Helper()
	return &valve{Backend: fixture.Open(t, "mem://"), ended: make(chan struct{})}
}

// over returns a cache over a valve.
func over(t *testing.T, b storage.Backend, o *cache.Options) *cache.Cache {
	t.Helper()
	c, err := cache.New(t.Context(), b, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// hold keeps back what the copies' watches bring, until release.
func (v *valve) hold() (release func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.held = make(chan struct{})
	return sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		close(v.held)
		v.held = nil
	})
}

// let has some events pass the valve while it holds back, and waits until the next one stands before it.
func (v *valve) let(t *testing.T, events int) {
	t.Helper()
	v.mu.Lock()
	waiting := v.waiting
	v.allowed = events
	held := v.held
	v.held = make(chan struct{})
	close(held)
	v.mu.Unlock()
	fixture.Eventually(t, "the events have passed", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.allowed == 0 && v.waiting > waiting
	})
}

// end ends the watches, as if their history were gone.
func (v *valve) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.ended)
	v.ended = make(chan struct{})
}

// unreachable has some more reads of the database fail, and returns how many will.
func (v *valve) unreachable(reads int, why error) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.away += reads
	if why != nil {
		v.why = why
	}
	return v.away
}

// asked returns how often proof was asked for.
func (v *valve) asked() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.bookmarks
}

// once takes a hook.
func once[T any](v *valve, hook *T) (taken T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var none T
	taken, *hook = *hook, none
	return taken
}

func (v *valve) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	v.mu.Lock()
	v.reads++
	if v.away > 0 {
		defer v.mu.Unlock()
		v.away--
		return nil, v.why
	}
	v.mu.Unlock()
	return v.Backend.Read(ctx, consistency, id)
}

func (v *valve) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	stored, err := v.Backend.WriteCAS(ctx, res)
	if hook := once(v, &v.answering); hook != nil {
		if err := hook(err); err != nil {
			return nil, err
		}
	}
	return stored, err
}

func (v *valve) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	w, err := v.Backend.WatchList(ctx, typ, tenancy, namePrefix)
	if err != nil || namePrefix != "" {
		return w, err
	}
	if hook := once(v, &v.listing); hook != nil {
		hook()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return &valvedWatch{Watch: w, valve: v, ended: v.ended}, nil
}

type valvedWatch struct {
	storage.Watch
	valve *valve
	ended chan struct{}
	past  bool // the snapshot, which is not held back
}

func (w *valvedWatch) Bookmark(ctx context.Context) error {
	w.valve.mu.Lock()
	w.valve.bookmarks++
	w.valve.mu.Unlock()
	return w.Watch.(storage.Bookmarker).Bookmark(ctx)
}

func (w *valvedWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-w.ended:
			cancel()
		case <-within.Done():
		}
	}()
	defer func() { cancel(); <-watching }()
	ev, err := w.Watch.Next(within)
	for err == nil {
		held := w.valve.closed(w.past)
		if held == nil {
			break
		}
		select {
		case <-held:
		case <-within.Done():
			err = within.Err()
		}
	}
	select {
	case <-w.ended:
		return nil, fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrCompacted)
	default:
		w.past = w.past || ev.GetEndOfSnapshot() != nil
		return ev, err
	}
}

// closed returns what an event has to wait for; nil if it may pass.
func (v *valve) closed(past bool) chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !past:
		return nil
	case v.held != nil && v.allowed > 0:
		v.allowed--
		return nil
	case v.held != nil:
		v.waiting++
	}
	return v.held
}

// mute is a backend whose watches prove nothing.
type mute struct{ storage.Backend }

func (m mute) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	w, err := m.Backend.WatchList(ctx, typ, tenancy, namePrefix)
	return struct{ storage.Watch }{w}, err
}

// As passes on the Transactor alone.
func (v *valve) As(target any) bool {
	if target, ok := target.(*storage.Transactor); ok {
		*target, ok = storage.As[storage.Transactor](v.Backend)
		return ok
	}
	return false
}
