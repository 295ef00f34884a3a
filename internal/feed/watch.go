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
	lifetime context.Context // ends with Close
	cancel   context.CancelFunc
	once     sync.Once

	// next is held by Next, mu for moments only, so that Cursor and Close never wait for a database.
	next sync.Mutex
	err  error // why the watch has ended

	snapshot  driver.Snapshot   // not nil while the watch is in its snapshot
	catching  bool              // reading from history
	history   driver.History[P] // while catching
	reading   BackgroundCall[page[P]]
	joinAt    *node[P]           // where to join the log once pending is used up; nil: read another page of history
	lastNode  *node[P]           // the last node of the log that the watch has passed
	pending   []*driver.Event[P] // of a page of history, or of the node after passed
	pendEnd   P                  // the position after pending
	using     bool               // pending and pendEnd are in use
	heldEvent *driver.Event[P]   // the event to return next, once the next batch has told whether its commit goes on
	open      bool               // the event returned last was not the last of its commit
	sound     bool               // the run's source has confirmed that at is a position in its history
	follows   bool               // wake is known to the run
	lastMoved time.Time          // when it last moved to another run
	wake      chan struct{}      // holds something when the log or a proof is worth a look

	recalls       atomic.Bool // what was stored before each change is wanted
	recalling     BackgroundCall[previousBatch[P]]
	portion       int                                  // how many changes to look up next
	previousCount int                                  // of how many of pending it is known
	before        map[*driver.Event[P]]*driver.Version // for those, and for held

	eager atomic.Bool // proofs is not empty: wants to hear of every batch

	mu          sync.Mutex
	at          P
	resumedFrom string // the cursor that the watch was resumed from, until it moves
	start       bool   // in the snapshot
	proofs      []*proof[P]
	endErr      error // err, for those who may not wait for next
}

// Watch returns a watch that begins with a snapshot, which was read after the mark was made and shows the state at.
func (f *Feed[P]) Watch(m Mark[P], filter key.Filter, snapshot driver.Snapshot, at P) storage.Watch {
	w := f.newWatch(m.run, filter, at)
	w.snapshot, w.start, w.sound = snapshot, true, true
	w.lastNode = m.node
	return f.offer(w)
}

// Resume returns a watch that begins with the changes after from, whose text is cursor. It waits for the source to be ready,
// within ctx.
func (f *Feed[P]) Resume(ctx context.Context, filter key.Filter, from P, cursor string) (storage.Watch, error) {
	m, err := f.Start(ctx)
	if err != nil {
		return nil, err
	}
	w := f.newWatch(m.run, filter, from)
	w.catching = true
	w.resumedFrom = cursor
	return f.offer(w), nil
}

func (f *Feed[P]) newWatch(r *run[P], filter key.Filter, at P) *watch[P] {
	w := &watch[P]{feed: f, run: r, filter: filter, at: at, wake: make(chan struct{}, 1), portion: maxPreviousReads}
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

// deliver returns what comes next, waiting for it if need be.
func (w *watch[P]) deliver(ctx context.Context) (delivery[P], error) {
	w.next.Lock()
	defer w.sweep()
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
			// A watch that was closed meanwhile drops what it holds.
			if w.lifetime.Err() != nil {
				return delivery[P]{}, w.end(storage.ErrWatchClosed)
			}
			return d, err
		}
	}
}

// step makes some progress: something to deliver, an error, or neither.
func (w *watch[P]) step(ctx context.Context) (d delivery[P], err error) {
	switch {
	case w.snapshot != nil:
		return w.fromSnapshot(ctx)
	case w.bookmarkDue():
		return w.bookmark(), nil
	case w.using && w.recalls.Load() && w.previousCount == 0 && len(w.pending) > 0:
		return d, w.recall(ctx)
	case w.using:
		return w.fromPending()
	case w.catching && w.joinAt != nil:
		w.catching, w.lastNode, w.joinAt = false, w.joinAt, nil
		return d, nil
	case w.catching:
		return d, w.readHistory(ctx)
	default:
		return d, w.follow(ctx)
	}
}

func (w *watch[P]) fromSnapshot(ctx context.Context) (d delivery[P], err error) {
	ctx, done := w.during(ctx)
	defer done()
	res, err := w.snapshot.Next(ctx)
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

// follow takes the log's next node, waiting for it if need be.
func (w *watch[P]) follow(ctx context.Context) error {
	n := w.lastNode.next.Load()
	if n == nil && w.lastNode.batch.Load() != nil {
		if !w.follows {
			// What came before it was known to wait is looked at once more.
			w.follows = true
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
			// What was published before the run ended is still delivered.
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
		w.catching, w.heldEvent = true, nil // history gives again what is held
		clear(w.before)
		return nil
	}
	w.lastNode = n
	w.use(b.events, b.end)
	return nil
}

// wakeUp has the watch look at the log.
func (w *watch[P]) wakeUp() {
	select {
	case w.wake <- struct{}{}:
	default: // it is going to
	}
}

// during returns ctx, ended also by Close.
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

// end makes err the watch's last word, unless it has had one, and returns the last word.
func (w *watch[P]) end(err error) error {
	w.finish(err)
	w.Close()
	return w.err
}

// finish frees what the watch holds. The caller holds next.
func (w *watch[P]) finish(err error) {
	if w.err != nil {
		return
	}
	w.err = err
	w.mu.Lock()
	w.endErr, w.proofs = err, nil
	w.mu.Unlock()
	w.pending, w.heldEvent, w.lastNode, w.joinAt, w.using, w.before = nil, nil, nil, nil, false, nil
	w.closeHistory()
	if w.snapshot != nil {
		w.snapshot.Close()
		w.snapshot = nil
	}
}

// sweep frees what a closed watch holds, in case nobody calls Next again, unless Next is running and will do it itself.
func (w *watch[P]) sweep() {
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
	w.sweep()
}

func closedWith(cause error) error {
	if errors.Is(cause, storage.ErrWatchClosed) {
		return cause
	}
	return fmt.Errorf("%w: %w", storage.ErrWatchClosed, cause)
}
