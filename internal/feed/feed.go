package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/telemetry"
)

// Options configure a feed. The zero value of each field selects its default.
type Options[P any] struct {
	// MaxEvents and MaxBytes bound the log: 10,000 events and 32 MiB.
	MaxEvents, MaxBytes int
	// Page is the number of events read from history at a time: 500.
	Page int
	// Outage is how long a watch that reads from history retries while the database fails: 5 minutes.
	Outage time.Duration
	// IdleTimeout is how long the source continues after the last watch was closed. 0 keeps it running as long as the feed.
	IdleTimeout time.Duration
	// InSnapshot is the cursor of a watch inside its snapshot.
	InSnapshot string
	// OnDelivered, if set, is called with each event just before a watch returns it.
	OnDelivered func(*driver.Event[P])
	// Telemetry records the number of watches and the backlog of the slowest one, and logs the end of a run. Nil records nothing.
	Telemetry *telemetry.Recorder
	// Before, if set, returns the resources stored just before some events of one batch or page, nil if nothing was stored. The
	// watches are then history.Recallers.
	Before func(ctx context.Context, events []*driver.Event[P]) ([]*driver.Version, error)
}

// Feed serves the watches of one opened backend.
type Feed[P any] struct {
	source Source[P]
	prover driver.Prover[P] // the source if it is a Prover, otherwise nil
	opts   Options[P]
	open   *openWatches

	lifetime context.Context // ends with Close
	stop     context.CancelFunc

	mu      sync.Mutex
	current *run[P] // nil before the first watch and after a run has ended
	closed  atomic.Bool
	ending  sync.WaitGroup // runs, and pending reads of history
}

// run is a call of Source.Run and the log filled by it.
type run[P any] struct {
	feed     *Feed[P]
	lifetime context.Context // ends with Run or earlier
	cancel   context.CancelFunc
	ready    chan struct{} // closed when the log has its first node
	endCh    chan struct{} // closed when Run has returned and err is set
	err      error

	publishedBytes atomic.Int64 // bytes of all events of the log, including those that have left it

	mu            sync.Mutex
	log           log[P]
	watches       int
	idleSince     time.Time                   // when the last watch was closed
	idleTimer     *time.Timer                 // calls endIfIdle; nil if it was never needed
	followers     map[*subscriber]struct{}    // watches that wait for the next node
	pendingWake   struct{ events, bytes int } // published since the last wake-up of all followers
	wakeScheduled bool                        // wakeDelayed is going to run

	rounds proofRounds[P]
}

// New returns a feed. Nothing runs before the first Start.
func New[P any](source Source[P], opts Options[P]) *Feed[P] {
	if opts.MaxEvents <= 0 {
		opts.MaxEvents = 10_000
	}
	if opts.MaxBytes <= 0 {
		opts.MaxBytes = 32 << 20
	}
	if opts.Page <= 0 {
		opts.Page = 500
	}
	if opts.Outage <= 0 {
		opts.Outage = 5 * time.Minute
	}
	f := &Feed[P]{source: source, opts: opts, open: newOpenWatches(opts.Telemetry)}
	f.prover, _ = source.(driver.Prover[P])
	f.lifetime, f.stop = context.WithCancel(context.Background())
	return f
}

// Mark is the log's end at some moment. It keeps the feed running until it is released or becomes a watch.
type Mark[P any] struct {
	run  *run[P]
	node *node[P]
}

// Start starts the source if necessary and notes the log's end. It is called before the snapshot is read, and followed by either
// Watch or Release. It waits for the source to become ready, within ctx.
func (f *Feed[P]) Start(ctx context.Context) (Mark[P], error) {
	r, err := f.acquire()
	if err != nil {
		return Mark[P]{}, err
	}
	select {
	case <-r.ready:
	case <-r.endCh:
	case <-ctx.Done():
	}
	// A run that was ready and has ended may still have changes to deliver: those before a move. Its end is checked first, so a run that has ended
	// without being ready is known not to become ready.
	ended := isClosed(r.endCh)
	if isClosed(r.ready) {
		return Mark[P]{run: r, node: r.end()}, nil
	}
	r.release()
	if ended {
		return Mark[P]{}, r.err
	}
	return Mark[P]{}, fmt.Errorf("%w: the feed of changes is not ready: %w", storage.ErrInconsistent, ctx.Err())
}

func isClosed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// Release releases a mark that does not become a watch.
func (m Mark[P]) Release() { m.run.release() }

// acquire returns the current run with one more watch on it, and begins a run if there is none.
func (f *Feed[P]) acquire() (*run[P], error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed.Load() {
		return nil, storage.ErrClosed
	}
	if f.current == nil {
		f.current = f.begin()
	}
	r := f.current
	r.mu.Lock()
	r.watches++
	r.stopIdleTimer()
	r.mu.Unlock()
	return r, nil
}

func (f *Feed[P]) begin() *run[P] {
	ctx, cancel := context.WithCancel(f.lifetime)
	r := &run[P]{feed: f, lifetime: ctx, cancel: cancel, ready: make(chan struct{}), endCh: make(chan struct{})}
	r.log.maxEvents, r.log.maxBytes = f.opts.MaxEvents, f.opts.MaxBytes
	r.followers = map[*subscriber]struct{}{}
	r.rounds = proofRounds[P]{prover: f.prover, lifetime: ctx, enter: f.enter}
	f.ending.Go(func() {
		err := f.source.Run(ctx, r.becomeReady, r.publish)
		f.mu.Lock()
		if f.current == r {
			f.current = nil
		}
		closed := f.closed.Load()
		f.mu.Unlock()
		r.mu.Lock()
		r.stopIdleTimer()
		r.mu.Unlock()
		switch {
		case closed:
			err = storage.ErrClosed
		case err == nil:
			err = errors.New("the feed of changes ended")
		}
		if !closed && ctx.Err() == nil {
			f.opts.Telemetry.Logger().Warn("the feed has ended, and with it its watches", "error", err)
		}
		r.err = err
		close(r.endCh)
		cancel()
	})
	return r
}

func (r *run[P]) becomeReady(at P) {
	r.publish(nil, at)
	close(r.ready)
}

func (r *run[P]) publish(events []*driver.Event[P], end P) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := newNode(events, end)
	number, bytes := n.batch.Load().weight()
	n.bytes = r.publishedBytes.Add(int64(bytes))
	r.log.append(n)
	r.pendingWake.events += number
	r.pendingWake.bytes += bytes
	switch {
	case len(events) > directWakeLimit || r.pendingWake.events > r.log.maxEvents/4 || r.pendingWake.bytes > r.log.maxBytes/4:
		r.wakeAll()
		return
	case !r.wakeScheduled:
		r.wakeScheduled = true
		time.AfterFunc(wakeDelay, r.wakeDelayed)
	}
	for s := range r.followers {
		if s.wantsBookmark.Load() || slices.ContainsFunc(events, func(ev *driver.Event[P]) bool { return s.filter.Match(&ev.Key) }) {
			s.wakeUp()
		}
	}
}

// Waking a watch costs many times as much as matching its filter. Watches whose filters do not match therefore sleep for wakeDelay at
// most. Then they all advance together, with their cursors. A batch of more than directWakeLimit events wakes all watches at once,
// which is then cheaper. A batch that could push watches out of the log also wakes all of them.
const (
	directWakeLimit = 8
	wakeDelay       = 50 * time.Millisecond
)

func (r *run[P]) wakeDelayed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wakeScheduled = false
	r.wakeAll()
}

func (r *run[P]) wakeAll() {
	r.pendingWake.events, r.pendingWake.bytes = 0, 0
	for s := range r.followers {
		s.wakeUp()
	}
}

// follow registers a watch: it is woken when the log has something for it.
func (r *run[P]) follow(s *subscriber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s.lifetime.Err() == nil {
		r.followers[s] = struct{}{}
	}
}

// unfollow is the inverse of follow, for a closed watch.
func (r *run[P]) unfollow(s *subscriber) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.followers, s)
}

func (r *run[P]) end() *node[P] {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.last
}

// release removes one watch from the run. If it was the last, the run ends after IdleTimeout.
func (r *run[P]) release() {
	r.mu.Lock()
	r.watches--
	defer r.mu.Unlock()
	// A timer would retain the log of a closed feed.
	if r.watches == 0 && r.feed.opts.IdleTimeout > 0 && !r.feed.closed.Load() {
		r.stopIdleTimer()
		r.idleSince, r.idleTimer = time.Now(), time.AfterFunc(r.feed.opts.IdleTimeout, r.endIfIdle)
	}
}

// stopIdleTimer stops the timer. The caller holds r.mu.
func (r *run[P]) stopIdleTimer() {
	if r.idleTimer != nil {
		r.idleTimer.Stop()
	}
}

func (r *run[P]) endIfIdle() {
	f := r.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	// A watch may have been opened and closed since the timer has fired.
	if r.watches == 0 && time.Since(r.idleSince) >= f.opts.IdleTimeout {
		if f.current == r {
			f.current = nil
		}
		r.cancel()
	}
}

// enter makes Close wait until leave is called. It returns false if the feed is closed.
func (f *Feed[P]) enter() (leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed.Load() {
		return nil, false
	}
	f.ending.Add(1)
	return f.ending.Done, true
}

// Close ends the source and all watches, whose error then matches storage.ErrClosed and storage.ErrWatchClosed, and waits for the
// source to return. Closing twice is allowed.
func (f *Feed[P]) Close() {
	f.mu.Lock()
	f.closed.Store(true)
	f.mu.Unlock()
	f.stop()
	f.ending.Wait()
}
