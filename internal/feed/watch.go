package feed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// watch is a position in a store's history, with a filter.
type watch[P any] struct {
	feed     *Feed[P]
	run      *run[P] // changed by Next, under mu
	filter   key.Filter
	skips    func(storage.UnversionedType) bool // selects the types whose damaged resources the watch skips; nil for none
	lifetime context.Context                    // ends with Close
	cancel   context.CancelFunc
	once     sync.Once

	// Next holds the lock next. The lock mu is held only briefly, so Cursor and Close never wait for a database.
	next sync.Mutex
	err  error // the final error

	snapshot   driver.Snapshot   // not nil while the watch is in its snapshot
	inHistory  bool              // reads from history, not from the log
	history    driver.History[P] // set while inHistory
	reading    BackgroundCall[page[P]]
	joinAt     *node[P]           // where to join the log after pending; nil if another page of history follows
	lastNode   *node[P]           // the last passed node of the log
	pending    []*driver.Event[P] // events of a page of history, or of the node after lastNode
	pendingEnd P                  // the position after pending
	hasPending bool               // pending and pendingEnd are set
	heldEvent  *driver.Event[P]   // the next event, held until the next batch shows whether its commit continues
	inCommit   bool               // the last returned event was not the last of its commit
	confirmed  bool               // the run's source has confirmed at as a position in its history
	registered bool               // the run wakes this watch
	lastMoved  time.Time          // time of the last move to another run
	wake       chan struct{}      // signals a change of the log or of a proof

	recalls       atomic.Bool // previous states are requested
	recalling     BackgroundCall[previousBatch[P]]
	lookupLimit   int                                  // number of changes in the next lookup
	previousCount int                                  // number of pending events with a known previous state
	before        map[*driver.Event[P]]*driver.Version // their previous states, and that of heldEvent

	wantsBookmark atomic.Bool // proofs is not empty, so every batch wakes the watch

	mu          sync.Mutex
	at          P
	resumedFrom string // the cursor from which the watch was resumed, until it moves
	start       bool   // inside the snapshot
	proofs      []*proof[P]
	endErr      error // err, readable without the lock next
}

// Watch returns a watch that begins with a snapshot. The snapshot was read after the mark was made and contains the state at a
// position.
func (f *Feed[P]) Watch(m Mark[P], filter key.Filter, snapshot driver.Snapshot, at P) storage.Watch {
	w := f.newWatch(m.run, filter, at)
	w.snapshot, w.start, w.confirmed = snapshot, true, true
	w.lastNode = m.node
	return f.offer(w)
}

// Resume returns a watch of the changes after a position, whose text is cursor. It waits for the source to be ready, within ctx.
func (f *Feed[P]) Resume(ctx context.Context, filter key.Filter, from P, cursor string) (storage.Watch, error) {
	m, err := f.Start(ctx)
	if err != nil {
		return nil, err
	}
	w := f.newWatch(m.run, filter, from)
	w.inHistory = true
	w.resumedFrom = cursor
	return f.offer(w), nil
}

func (f *Feed[P]) newWatch(r *run[P], filter key.Filter, at P) *watch[P] {
	w := &watch[P]{feed: f, run: r, filter: filter, at: at, wake: make(chan struct{}, 1), lookupLimit: maxPreviousReads}
	w.lifetime, w.cancel = context.WithCancel(context.Background())
	return w
}

// Next implements storage.Watch.
func (w *watch[P]) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	d, err := w.deliver(ctx)
	if err != nil {
		return nil, err
	}
	return d.watchEvent(), nil
}

// deliver returns the next delivery and waits until there is one.
func (w *watch[P]) deliver(ctx context.Context) (delivery[P], error) {
	w.next.Lock()
	defer w.freeIfClosed()
	defer w.next.Unlock()
	for {
		if w.err != nil {
			return delivery[P]{}, w.err
		}
		if w.lifetime.Err() != nil {
			return delivery[P]{}, w.end(storage.ErrWatchClosed)
		}
		if w.feed.closed.Load() {
			return delivery[P]{}, w.end(closedWith(storage.ErrClosed))
		}
		if err := ctx.Err(); err != nil {
			return delivery[P]{}, err
		}
		d, err := w.step(ctx)
		if d.kind != nothing || err != nil {
			// A watch that was closed meanwhile drops the delivery.
			if w.lifetime.Err() != nil {
				return delivery[P]{}, w.end(storage.ErrWatchClosed)
			}
			return d, err
		}
	}
}

// step makes progress: it returns a delivery, an error, or neither.
func (w *watch[P]) step(ctx context.Context) (d delivery[P], err error) {
	switch {
	case w.snapshot != nil:
		return w.fromSnapshot(ctx)
	case w.bookmarkDue():
		return w.bookmark(), nil
	case w.hasPending && w.recalls.Load() && w.previousCount == 0 && len(w.pending) > 0:
		return d, w.recall(ctx)
	case w.hasPending:
		return w.fromPending()
	case w.inHistory && w.joinAt != nil:
		w.inHistory, w.lastNode, w.joinAt = false, w.joinAt, nil
		return d, nil
	case w.inHistory:
		return d, w.readHistory(ctx)
	default:
		return d, w.follow(ctx)
	}
}

// SkipDamage makes the watch skip damaged resources of some types, for a reader that uses only a part of its events. The function is called before the
// first Next.
func (w *watch[P]) SkipDamage(of func(storage.UnversionedType) bool) { w.skips = of }

func (w *watch[P]) skipsDamage(of storage.UnversionedType) bool { return w.skips != nil && w.skips(of) }

func (w *watch[P]) fromSnapshot(ctx context.Context) (d delivery[P], err error) {
	ctx, done := w.during(ctx)
	defer done()
	res, err := w.snapshot.Next(ctx)
	if damaged := (*storage.DamagedError)(nil); errors.As(err, &damaged) && w.skipsDamage(storage.UnversionedTypeFrom(damaged.ID.GetType())) {
		return d, nil
	}
	switch {
	case errors.Is(err, io.EOF):
		w.snapshot.Close()
		w.snapshot = nil
		w.mu.Lock()
		w.start = false
		w.mu.Unlock()
		return delivery[P]{kind: snapshotEnd}, nil
	case err != nil && ctx.Err() != nil:
		return d, ctx.Err()
	case err != nil:
		return d, w.end(closedWith(fmt.Errorf("read the snapshot: %w", err)))
	}
	return delivery[P]{kind: inSnapshot, resource: res}, nil
}

// follow takes the log's next node and waits until there is one.
func (w *watch[P]) follow(ctx context.Context) error {
	n := w.lastNode.next.Load()
	if n == nil && w.lastNode.batch.Load() != nil {
		if !w.registered {
			// A node may have arrived before the registration, so check again.
			w.registered = true
			w.run.follow(w)
			return nil
		}
		select {
		case <-w.wake:
		case <-w.proofCh():
		case <-w.lifetime.Done():
		case <-ctx.Done():
			return ctx.Err()
		case <-w.run.doneCh:
			// Events published before the end of the run are still delivered.
			if w.lastNode.next.Load() == nil && w.lastNode.batch.Load() != nil {
				return w.leaveRun(ctx)
			}
		}
		return nil
	}
	var b *batch[P]
	if n != nil {
		b = n.batch.Load()
	}
	if b == nil {
		w.inHistory, w.heldEvent = true, nil // history returns the held event again
		clear(w.before)
		return nil
	}
	w.lastNode = n
	w.use(b.events, b.end)
	return nil
}

// wakeUp makes the watch check the log.
func (w *watch[P]) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // a signal is pending
	}
}

// during returns ctx, which Close also ends.
func (w *watch[P]) during(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(w.lifetime, cancel)
	return ctx, func() { stop(); cancel() }
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
	if w.snapshot != nil {
		w.snapshot.Close()
		w.snapshot = nil
	}
}

// freeIfClosed frees the data of a closed watch, unless a running Next will do so.
func (w *watch[P]) freeIfClosed() {
	if w.lifetime.Err() != nil && w.next.TryLock() {
		w.finish(storage.ErrWatchClosed)
		w.next.Unlock()
	}
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
		w.cancel()
		r := w.currentRun()
		r.unfollow(w)
		r.release()
	})
	w.freeIfClosed()
}

func closedWith(cause error) error {
	if errors.Is(cause, storage.ErrWatchClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", storage.ErrWatchClosed, cause)
}
