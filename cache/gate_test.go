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

// gate is a backend that can block and end its watches, and that can delay the acknowledgement of a write. It affects only watches of all
// names, such as the copy's.
type gate struct {
	storage.Backend
	mu             sync.Mutex
	release        chan struct{}     // closed when events flow again; nil while they flow
	blockedEvents  int               // number of events that were blocked
	allowedEvents  int               // number of events that may still pass while blocked
	endCh          chan struct{}     // closed to end the watches
	bookmarks      int               // number of bookmark requests
	reads          int               // number of reads of the database
	failingReads   int               // number of reads of the database that still fail
	readErr        error             // their error
	beforeAck      func(error) error // called once, between a write and its acknowledgement
	beforeSnapshot func()            // called once, between opening a watch and returning it
}

func newGate(t *testing.T) *gate {
	t.Helper()
	return &gate{Backend: fixture.Open(t, "mem://"), endCh: make(chan struct{})}
}

// newCache returns a cache over a backend and closes it after the test.
func newCache(t *testing.T, b storage.Backend, o *cache.Options) *cache.Cache {
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

// hold blocks the events of the copy's watches until release is called.
func (v *gate) hold() (release func()) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.release = make(chan struct{})
	return sync.OnceFunc(func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		close(v.release)
		v.release = nil
	})
}

// passEvents lets a number of events pass the closed gate, and returns when the next one is blocked.
func (v *gate) passEvents(t *testing.T, events int) {
	t.Helper()
	v.mu.Lock()
	waiting := v.blockedEvents
	v.allowedEvents = events
	release := v.release
	v.release = make(chan struct{})
	close(release)
	v.mu.Unlock()
	fixture.Eventually(t, "the events pass the gate", func() bool {
		v.mu.Lock()
		defer v.mu.Unlock()
		return v.allowedEvents == 0 && v.blockedEvents > waiting
	})
}

// endWatches ends the watches, as after a loss of history.
func (v *gate) endWatches() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.endCh)
	v.endCh = make(chan struct{})
}

// failReads makes further reads of the database fail, and returns the number of reads that still fail.
func (v *gate) failReads(reads int, why error) int {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.failingReads += reads
	if why != nil {
		v.readErr = why
	}
	return v.failingReads
}

// bookmarkRequests returns the number of bookmark requests.
func (v *gate) bookmarkRequests() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.bookmarks
}

// takeHook returns a hook and clears it.
func takeHook[T any](v *gate, hook *T) (taken T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var none T
	taken, *hook = *hook, none
	return taken
}

func (v *gate) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	v.mu.Lock()
	v.reads++
	if v.failingReads > 0 {
		defer v.mu.Unlock()
		v.failingReads--
		return nil, v.readErr
	}
	v.mu.Unlock()
	return v.Backend.Read(ctx, consistency, id)
}

func (v *gate) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	stored, err := v.Backend.WriteCAS(ctx, res)
	if hook := takeHook(v, &v.beforeAck); hook != nil {
		if err := hook(err); err != nil {
			return nil, err
		}
	}
	return stored, err
}

func (v *gate) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	w, err := v.Backend.WatchList(ctx, typ, tenancy, namePrefix)
	if err != nil || namePrefix != "" {
		return w, err
	}
	if hook := takeHook(v, &v.beforeSnapshot); hook != nil {
		hook()
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return &gatedWatch{Watch: w, gate: v, endCh: v.endCh}, nil
}

type gatedWatch struct {
	storage.Watch
	gate  *gate
	endCh chan struct{}
	past  bool // the snapshot is complete; its events are never blocked
}

func (w *gatedWatch) Bookmark(ctx context.Context) error {
	w.gate.mu.Lock()
	w.gate.bookmarks++
	w.gate.mu.Unlock()
	return w.Watch.(storage.Bookmarker).Bookmark(ctx)
}

func (w *gatedWatch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-w.endCh:
			cancel()
		case <-within.Done():
		}
	}()
	defer func() { cancel(); <-watching }()
	ev, err := w.Watch.Next(within)
	for err == nil {
		release := w.gate.block(w.past)
		if release == nil {
			break
		}
		select {
		case <-release:
		case <-within.Done():
			err = within.Err()
		}
	}
	select {
	case <-w.endCh:
		return nil, fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrCompacted)
	default:
		w.past = w.past || ev.GetEndOfSnapshot() != nil
		return ev, err
	}
}

// block returns the channel that an event must wait for; nil if it may pass.
func (v *gate) block(past bool) chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case !past:
		return nil
	case v.release != nil && v.allowedEvents > 0:
		v.allowedEvents--
		return nil
	case v.release != nil:
		v.blockedEvents++
	}
	return v.release
}

// noBookmarks is a backend whose watches have no bookmarks.
type noBookmarks struct{ storage.Backend }

func (m noBookmarks) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	w, err := m.Backend.WatchList(ctx, typ, tenancy, namePrefix)
	return struct{ storage.Watch }{w}, err
}

// As passes on only the Transactor.
func (v *gate) As(target any) bool {
	if target, ok := target.(*storage.Transactor); ok {
		*target, ok = storage.As[storage.Transactor](v.Backend)
		return ok
	}
	return false
}
