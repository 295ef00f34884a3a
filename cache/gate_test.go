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
func (g *gate) hold() (release func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.release = make(chan struct{})
	return sync.OnceFunc(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		close(g.release)
		g.release = nil
	})
}

// passEvents lets a number of events pass the closed gate, and returns when the next one is blocked.
func (g *gate) passEvents(t *testing.T, events int) {
	t.Helper()
	g.mu.Lock()
	waiting := g.blockedEvents
	g.allowedEvents = events
	release := g.release
	g.release = make(chan struct{})
	close(release)
	g.mu.Unlock()
	fixture.Eventually(t, "the events pass the gate", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return g.allowedEvents == 0 && g.blockedEvents > waiting
	})
}

// endWatches ends the watches, as after a loss of history.
func (g *gate) endWatches() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.endCh)
	g.endCh = make(chan struct{})
}

// failReads makes further reads of the database fail, and returns the number of reads that still fail.
func (g *gate) failReads(reads int, why error) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failingReads += reads
	if why != nil {
		g.readErr = why
	}
	return g.failingReads
}

// bookmarkRequests returns the number of bookmark requests.
func (g *gate) bookmarkRequests() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.bookmarks
}

// takeHook returns a hook and clears it.
func takeHook[T any](g *gate, hook *T) (taken T) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var none T
	taken, *hook = *hook, none
	return taken
}

func (g *gate) Read(ctx context.Context, consistency storage.ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error) {
	g.mu.Lock()
	g.reads++
	if g.failingReads > 0 {
		defer g.mu.Unlock()
		g.failingReads--
		return nil, g.readErr
	}
	g.mu.Unlock()
	return g.Backend.Read(ctx, consistency, id)
}

func (g *gate) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	stored, err := g.Backend.WriteCAS(ctx, res)
	if hook := takeHook(g, &g.beforeAck); hook != nil {
		if err := hook(err); err != nil {
			return nil, err
		}
	}
	return stored, err
}

func (g *gate) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	w, err := g.Backend.WatchList(ctx, typ, tenancy, namePrefix)
	if err != nil || namePrefix != "" {
		return w, err
	}
	if hook := takeHook(g, &g.beforeSnapshot); hook != nil {
		hook()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return &gatedWatch{Watch: w, gate: g, endCh: g.endCh}, nil
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
func (g *gate) block(past bool) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case !past:
		return nil
	case g.release != nil && g.allowedEvents > 0:
		g.allowedEvents--
		return nil
	case g.release != nil:
		g.blockedEvents++
	}
	return g.release
}

// noBookmarks is a backend whose watches have no bookmarks.
type noBookmarks struct{ storage.Backend }

func (m noBookmarks) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	w, err := m.Backend.WatchList(ctx, typ, tenancy, namePrefix)
	return struct{ storage.Watch }{w}, err
}

// As passes on only the Transactor.
func (g *gate) As(target any) bool {
	if target, ok := target.(*storage.Transactor); ok {
		*target, ok = storage.As[storage.Transactor](g.Backend)
		return ok
	}
	return false
}
