// Package batch combines calls that arrive during a request into the next request. There is no timer, so a single call is not
// delayed; under load, batches grow by themselves.
//
// Each call has its own result and its own error. A call whose context ends leaves without an effect on the others. Before it was
// taken into a batch, nothing was sent, and it returns the context's error; afterwards its outcome is unknown, and its error also
// matches storage.ErrInconsistent. Two calls with the same key are never in one batch.
package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/telemetry"
)

// Options configure a batcher. The zero value of each field selects its default.
type Options[Q any] struct {
	// MaxCalls is the maximum number of calls in a batch: 100.
	MaxCalls int
	// MaxBytes is the maximum sum of Size in a batch; 0 is unlimited. A single call may exceed it.
	MaxBytes int
	// Size returns the size of a call in bytes. It is required with MaxBytes.
	Size func(Q) int
	// Key returns a key that two calls of a batch must not share. A call with the key "" fits every batch; a nil Key means "" for
	// all.
	Key func(Q) string
	// Workers is the maximum number of concurrent batches: 1.
	Workers int
	// WorkerAt is the number of waiting calls that starts another worker: 64.
	WorkerAt int
	// Direct lets the caller run its own call, under its own context, if no other is in flight. This saves the way to a worker and
	// back. do must return soon after that context has ended.
	Direct bool
	// Sizes records the number of calls in each batch.
	Sizes *telemetry.Series
}

// Call is a member of a batch.
type Call[Q, R any] struct {
	// Request is the caller's request.
	Request Q

	ctx      context.Context
	resultCh chan struct{}
	once     sync.Once
	result   R
	err      error
	afterDo  bool // its result comes after do has returned
	awake    atomic.Bool
	hasLeft  atomic.Bool // it has its result, or its caller has left
	inBatch  bool        // under Batcher.mu
	flight   *inFlight   // the batch that contains it
}

// Context returns the caller's context. It may have ended; the call is still part of the batch.
func (c *Call[Q, R]) Context() context.Context { return c.ctx }

// Done sets the result. Only the first call of Done has an effect.
func (c *Call[Q, R]) Done(result R, err error) {
	c.once.Do(func() {
		c.result, c.err = result, err
		close(c.resultCh)
		c.part()
	})
}

// hasResult reports whether Done was called.
func (c *Call[Q, R]) hasResult() bool {
	select {
	case <-c.resultCh:
		return true
	default:
		return false
	}
}

// Requeue reports that the result will be set after do has returned: the call continues separately, under its own context. It is
// called inside do.
func (c *Call[Q, R]) Requeue() {
	c.afterDo = true
	c.wake()
}

// wake notes that the worker need not wait until the caller runs again.
func (c *Call[Q, R]) wake() {
	if c.awake.CompareAndSwap(false, true) {
		c.flight.asleep.Done()
	}
}

// part notes that the caller does not wait for the batch any more.
func (c *Call[Q, R]) part() {
	if c.hasLeft.CompareAndSwap(false, true) && c.flight.waiting.Add(-1) == 0 {
		c.flight.cancel()
	}
}

// inFlight counts the callers that still wait for a batch. Its context ends when none is left.
type inFlight struct {
	cancel  context.CancelFunc
	waiting atomic.Int32
	asleep  sync.WaitGroup // callers that have not resumed yet
}

// board adds a call to a batch. The caller holds Batcher.mu.
func (c *Call[Q, R]) board(flight *inFlight) {
	c.inBatch, c.flight = true, flight
	flight.waiting.Add(1)
	flight.asleep.Add(1)
}

// Batcher combines calls into batches.
type Batcher[Q, R any] struct {
	opts Options[Q]
	do   func(ctx context.Context, calls []*Call[Q, R])

	mu      sync.Mutex
	queue   []*Call[Q, R]
	workers int
	closed  bool
	running sync.WaitGroup
}

// New returns a batcher. do runs a batch and calls Done or Requeue on every member. Its context ends when no caller waits for the
// batch any more. The context has a deadline only if a caller runs its own call.
func New[Q, R any](opts Options[Q], do func(ctx context.Context, calls []*Call[Q, R])) *Batcher[Q, R] {
	if opts.MaxCalls <= 0 {
		opts.MaxCalls = 100
	}
	if opts.Workers <= 0 {
		opts.Workers = 1
	}
	if opts.WorkerAt <= 0 {
		opts.WorkerAt = 64
	}
	return &Batcher[Q, R]{opts: opts, do: do}
}

// Do runs the request as part of a batch and returns its result.
func (b *Batcher[Q, R]) Do(ctx context.Context, request Q) (R, error) {
	var none R
	if err := ctx.Err(); err != nil {
		return none, err
	}
	c := &Call[Q, R]{Request: request, ctx: ctx, resultCh: make(chan struct{})}
	switch b.enqueue(c) {
	case rejectCall:
		return none, storage.ErrClosed
	case direct:
		b.lead(c)
	}
	select {
	case <-c.resultCh:
		c.wake()
		return c.result, c.err
	case <-ctx.Done():
	}
	sent := b.leave(c)
	select {
	case <-c.resultCh: // the result came at the same moment
		if !errors.Is(c.err, context.Canceled) { // Canceled comes from the batch's own context, which ended because all callers have left
			return c.result, c.err
		}
	default:
	}
	if !sent {
		return none, ctx.Err()
	}
	return none, fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err())
}

// reception is the treatment of a new call.
type reception int

const (
	rejectCall reception = iota
	queued
	direct // the caller works, for this call only
)

func (b *Batcher[Q, R]) enqueue(c *Call[Q, R]) reception {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return rejectCall
	}
	if b.workers == 0 && b.opts.Direct {
		b.workers++
		b.running.Add(1)
		c.board(&inFlight{cancel: func() {}})
		return direct
	}
	b.queue = append(b.queue, c)
	if b.workers == 0 || b.workers < b.opts.Workers && len(b.queue) >= b.opts.WorkerAt {
		b.workers++
		b.running.Go(b.work)
	}
	return queued
}

// lead runs a caller's call in its own goroutine.
func (b *Batcher[Q, R]) lead(c *Call[Q, R]) {
	defer b.endLead()
	b.carryOut(c.ctx, []*Call[Q, R]{c})
}

// endLead ends the work of a caller and passes the calls that have arrived since to a worker.
func (b *Batcher[Q, R]) endLead() {
	defer b.running.Done()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.workers--
		return
	}
	b.running.Go(b.work)
}

// leave removes a caller whose context has ended from the queue or from its batch. It reports whether the call may have been sent.
func (b *Batcher[Q, R]) leave(c *Call[Q, R]) (sent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.inBatch {
		c.wake()
		c.part()
		return true
	}
	for i, queued := range b.queue {
		if queued == c {
			b.queue = append(b.queue[:i], b.queue[i+1:]...)
			break
		}
	}
	return false
}

// work runs batches until the queue is empty.
func (b *Batcher[Q, R]) work() {
	for {
		ctx, cancel := context.WithCancel(context.Background())
		calls := b.take(cancel)
		if len(calls) == 0 {
			cancel()
			return
		}
		b.carryOut(ctx, calls)
		cancel()
		// The callers are resuming. Those that immediately call again have done so when the last of them runs, and then share
		// the next batch, which is nearly twice as large as without this wait.
		calls[0].flight.asleep.Wait()
	}
}

func (b *Batcher[Q, R]) carryOut(ctx context.Context, calls []*Call[Q, R]) {
	b.opts.Sizes.Add(ctx, float64(len(calls)))
	b.do(ctx, calls)
	for _, c := range calls {
		if !c.afterDo && !c.hasResult() {
			var none R
			c.Done(none, errors.New("batch: a call was left without a result"))
		}
	}
}

// take takes the next batch from the queue, in order. A call waits for a later batch if its key is in the batch already. All later
// calls with that key then also wait. If the queue is empty, the worker signs off under the same lock, so no call is left behind.
func (b *Batcher[Q, R]) take(cancel context.CancelFunc) []*Call[Q, R] {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.queue) == 0 {
		b.workers--
		return nil
	}
	flight := &inFlight{cancel: cancel}
	var calls, rest []*Call[Q, R]
	var keys map[string]struct{}
	if b.opts.Key != nil {
		keys = make(map[string]struct{}, min(len(b.queue), b.opts.MaxCalls))
	}
	bytes := 0
	for i, c := range b.queue {
		if len(calls) == b.opts.MaxCalls {
			rest = append(rest, b.queue[i:]...)
			break
		}
		if keys != nil {
			if k := b.opts.Key(c.Request); k != "" {
				if _, there := keys[k]; there {
					rest = append(rest, c)
					continue
				}
				keys[k] = struct{}{}
			}
		}
		if b.opts.MaxBytes > 0 {
			size := b.opts.Size(c.Request)
			if len(calls) > 0 && bytes+size > b.opts.MaxBytes {
				rest = append(rest, b.queue[i:]...)
				break
			}
			bytes += size
		}
		c.board(flight)
		calls = append(calls, c)
	}
	clear(b.queue)
	b.queue = append(b.queue[:0], rest...)
	return calls
}

// Record records a call that the caller sends by itself as a batch.
func (b *Batcher[Q, R]) Record(ctx context.Context) { b.opts.Sizes.Add(ctx, 1) }

// Close refuses new calls and waits for the accepted ones.
func (b *Batcher[Q, R]) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}
