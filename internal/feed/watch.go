package feed

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
)

// watch is a position in a store's history, with a filter.
type watch[P any] struct {
	subscriber
	feed   *Feed[P]
	run    *run[P]                            // changed by Next, under mu
	skips  func(storage.UnversionedType) bool // selects the types whose damaged resources the watch skips; nil for none
	cancel context.CancelFunc
	once   sync.Once

	progress *progress // nil without telemetry

	// Next holds the lock next. The lock mu is held only briefly, so Cursor and Close never wait for a database.
	next sync.Mutex
	err  error // the final error

	snapshot    driver.Snapshot   // not nil while the watch is in its snapshot
	joinCtx     joinedContext     // of the reads of the snapshot
	inHistory   bool              // reads from history, not from the log
	history     driver.History[P] // set while inHistory
	reading     BackgroundCall[page[P]]
	failing     outage             // of the reads of history; used by reading
	joinAt      *node[P]           // where to join the log after pending; nil if another page of history follows
	lastNode    *node[P]           // the last passed node of the log
	pending     []*driver.Event[P] // events of a page of history, or of the node after lastNode
	pendingEnd  P                  // the position after pending
	hasPending  bool               // pending and pendingEnd are set
	heldEvent   *driver.Event[P]   // the next event, held until the next batch shows whether its commit continues
	inCommit    bool               // the last returned event was not the last of its commit
	atConfirmed bool               // the run's source has confirmed at as a position in its history
	runWakes    bool               // the run wakes this watch
	lastMoved   time.Time          // time of the last move to another run

	recalls       atomic.Bool // previous states are requested
	recalling     BackgroundCall[previousBatch[P]]
	lookupLimit   int                                  // number of changes in the next lookup
	previousCount int                                  // number of pending events with a known previous state
	before        map[*driver.Event[P]]*driver.Version // their previous states, and that of heldEvent

	mu          sync.Mutex
	at          P
	resumedFrom string             // the cursor from which the watch was resumed, until it moves
	start       bool               // inside the snapshot
	requests    int64              // the number of requested bookmarks
	answered    int64              // the number of the newest request that was answered
	proofs      []expectedProof[P] // at most two, by rising numbers
	endErr      error              // err, readable without the lock next
}

func (f *Feed[P]) newWatch(r *run[P], filter key.Filter, at P) *watch[P] {
	w := &watch[P]{feed: f, run: r, at: at, lookupLimit: maxPreviousReads}
	w.filter, w.wake, w.progress = filter, make(chan struct{}, 1), f.open.add(&r.publishedBytes)
	w.lifetime, w.cancel = context.WithCancel(context.Background())
	return w
}

// SkipDamage makes the watch skip damaged resources of some types, for a reader that uses only a part of its events. The function is called before the
// first Next.
func (w *watch[P]) SkipDamage(of func(storage.UnversionedType) bool) { w.skips = of }

func (w *watch[P]) skipsDamage(of storage.UnversionedType) bool { return w.skips != nil && w.skips(of) }

// joinedContext ends with the context of a caller, and with the lifetime of a watch. It is kept for later calls with the same context, because
// making it takes longer than reading a resource from memory.
type joinedContext struct {
	context.Context                 // nil if there is none
	doneCh          <-chan struct{} // of the caller's context
	release         func()
}

// join returns ctx, which the end of lifetime also ends.
func (j *joinedContext) join(ctx, lifetime context.Context) context.Context {
	if j.Context == nil || j.doneCh != ctx.Done() {
		j.leave()
		joined, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(lifetime, cancel)
		*j = joinedContext{joined, ctx.Done(), func() { stop(); cancel() }}
	}
	return j.Context
}

// leave frees the context.
func (j *joinedContext) leave() {
	if j.Context != nil {
		j.release()
		*j = joinedContext{}
	}
}

func (w *watch[P]) position() P {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.at
}

// end sets the final error, unless there is one, and returns the final error.
func (w *watch[P]) end(err error) error {
	w.finish(err)
	w.Close()
	return w.err
}

// finish frees the watch's data. The caller holds the lock next.
func (w *watch[P]) finish(err error) {
	if w.err != nil {
		return
	}
	w.err = err
	w.mu.Lock()
	w.endErr, w.proofs = err, nil
	w.mu.Unlock()
	w.pending, w.heldEvent, w.lastNode, w.joinAt, w.hasPending, w.before = nil, nil, nil, nil, false, nil
	w.closeHistory()
	w.closeSnapshot()
}

func (w *watch[P]) closeSnapshot() {
	w.joinCtx.leave()
	if w.snapshot != nil {
		w.snapshot.Close()
		w.snapshot = nil
	}
}

// freeIfClosed frees the data of a closed watch, unless a running Next will do so.
func (w *watch[P]) freeIfClosed() {
	if w.lifetime.Err() != nil && w.next.TryLock() {
		w.finish(w.closedErr())
		w.next.Unlock()
	}
}

// closedErr is the error of a closed watch, or of a watch of a closed feed.
func (w *watch[P]) closedErr() error {
	if w.feed.closed.Load() {
		return closedWith(storage.ErrClosed)
	}
	return storage.ErrWatchClosed
}

// Cursor implements storage.Watch.
func (w *watch[P]) Cursor() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.start:
		return w.feed.opts.InSnapshot
	case w.resumedFrom != "":
		return w.resumedFrom
	}
	return w.feed.source.Cursor(w.at)
}

// Close implements storage.Watch.
func (w *watch[P]) Close() {
	w.once.Do(func() {
		w.mu.Lock()
		w.cancel() // the watch has advanced to an event, and returns it, or does not advance any more
		r := w.run
		w.mu.Unlock()
		r.unfollow(&w.subscriber)
		r.release()
		w.feed.open.remove(w.progress)
	})
	w.freeIfClosed()
}

func closedWith(cause error) error {
	if errors.Is(cause, storage.ErrWatchClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", storage.ErrWatchClosed, cause)
}

// page is a page of history. After the last one, the watch joins the log at the end noted before that page was read.
type page[P any] struct {
	events []*driver.Event[P]
	end    P
	joinAt *node[P] // nil if another page follows
}

func (w *watch[P]) closeHistory() {
	if w.history != nil {
		w.history.Close()
		w.history = nil
	}
}

// maxPreviousReads is the maximum number of changes in one lookup. Each previous state may have up to 1 MiB, however small the
// change.
const maxPreviousReads = 64

// previousBatch is the previous states of some changes.
type previousBatch[P any] struct {
	events   []*driver.Event[P]
	versions []*driver.Version
	until    int // the number of pending events that the batch covers
}

func (w *watch[P]) currentRun() *run[P] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.run
}
