// Package batch joins calls that arrive while another is under way into one request: natural batching. There is no timer, so a
// lone call is not delayed; under load the batches grow by themselves.
//
// Each call gets its own result and its own error. A call whose context ends leaves by itself and disturbs nobody: before it
// was taken into a batch nothing was sent, and it gets the context's error; afterwards what becomes of it is unknown, and its
// error matches storage.ErrInconsistent too. Two calls with the same key are never in one batch.
package batch

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
)

// Options are the bounds of a batcher. Zero values are sensible.
type Options[Q any] struct {
	// MaxCalls is the largest number of calls in a batch: 100.
	MaxCalls int
	// MaxBytes is the largest sum of Size in a batch; 0: no bound. A single call may exceed it.
	MaxBytes int
	// Size is the size of a call in bytes. Needed where MaxBytes is set.
	Size func(Q) int
	// Key tells calls apart that may not share a batch; nil: all may. "" shares with all.
	Key func(Q) string
	// Workers is the largest number of batches under way: 1.
	Workers int
	// WorkerAt is the number of waiting calls from which another worker is worth it: 64.
	WorkerAt int
	// Direct has a call that finds none under way carried out by its own caller, under its own context, which spares it the way
	// to a worker and back. do has to return soon after that context ends.
	Direct bool
}

// Call is one member of a batch.
type Call[Q, R any] struct {
	// Request is what the caller asked for.
	Request Q

	ctx    context.Context
	done   chan struct{}
	once   sync.Once
	result R
	err    error
	later  bool // answered after do has returned
	awake  atomic.Bool
	taken  bool      // under Batcher.mu
	flight *inFlight // the batch that it was taken into
}

// Context is the caller's. It may be over; the call is still part of the batch.
func (c *Call[Q, R]) Context() context.Context { return c.ctx }

// Done gives the caller its result. Only the first one counts.
func (c *Call[Q, R]) Done(result R, err error) {
	c.once.Do(func() {
		c.result, c.err = result, err
		close(c.done)
	})
}

// Finished reports whether Done was called.
func (c *Call[Q, R]) Finished() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// Requeue says that the call will get its result after do has returned: it goes on by itself, under its own context. For use
// inside do.
func (c *Call[Q, R]) Requeue() {
	c.later = true
	c.wake()
}

// wake notes that nobody has to wait until the caller runs again.
func (c *Call[Q, R]) wake() {
	if c.awake.CompareAndSwap(false, true) {
		c.flight.asleep.Done()
	}
}

// inFlight counts the callers that still wait for a batch. Its context ends when there are none left.
type inFlight struct {
	cancel  context.CancelFunc
	waiting int            // under Batcher.mu
	asleep  sync.WaitGroup // callers that do not run yet
}

// board makes a call a member of a batch. It is called under Batcher.mu.
func (c *Call[Q, R]) board(flight *inFlight) {
	c.taken, c.flight = true, flight
	flight.waiting++
	flight.asleep.Add(1)
}

// Batcher makes batches of calls.
type Batcher[Q, R any] struct {
	opts Options[Q]
	do   func(ctx context.Context, calls []*Call[Q, R])

	mu      sync.Mutex
	queue   []*Call[Q, R]
	workers int
	closed  bool
	running sync.WaitGroup
}

// New returns a batcher. do carries out a batch and calls Done, or Later, on every member; the context that it gets ends when
// nobody waits for the batch any more, and has no deadline of its own unless it is a caller's.
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

// Do has the request carried out in some batch and returns its result.
func (b *Batcher[Q, R]) Do(ctx context.Context, request Q) (R, error) {
	var none R
	if err := ctx.Err(); err != nil {
		return none, err
	}
	c := &Call[Q, R]{Request: request, ctx: ctx, done: make(chan struct{})}
	switch b.enqueue(c) {
	case refused:
		return none, storage.ErrClosed
	case direct:
		b.lead(c)
	}
	select {
	case <-c.done:
		c.wake()
		return c.result, c.err
	case <-ctx.Done():
	}
	sent := b.leave(c)
	select {
	case <-c.done: // it came in the same moment
		if !errors.Is(c.err, context.Canceled) { // which would be the batch's own context, ended because everybody has left
			return c.result, c.err
		}
	default:
	}
	if !sent {
		return none, ctx.Err()
	}
	return none, fmt.Errorf("%w: %w", storage.ErrInconsistent, ctx.Err())
}

// What becomes of a new call.
type reception int

const (
	refused reception = iota
	queued
	direct // its caller is a worker, for this one call
)

func (b *Batcher[Q, R]) enqueue(c *Call[Q, R]) reception {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return refused
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

// lead has a caller carry out its own call.
func (b *Batcher[Q, R]) lead(c *Call[Q, R]) {
	defer b.endLead()
	b.carryOut(c.ctx, []*Call[Q, R]{c})
}

// endLead ends the work of a caller and leaves the calls that came meanwhile to a worker.
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

// leave takes a caller that has given up out of the queue, or out of its batch. It reports whether the call may have been sent.
func (b *Batcher[Q, R]) leave(c *Call[Q, R]) (sent bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if c.taken {
		c.wake()
		c.flight.waiting--
		if c.flight.waiting == 0 {
			c.flight.cancel()
		}
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

// work carries out batches until the queue is empty.
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
		// The callers are being woken. Those that call again at once do so by the time the last of them runs, and then share
		// the next batch, which is nearly twice as large as one that is taken without waiting for them.
		calls[0].flight.asleep.Wait()
	}
}

func (b *Batcher[Q, R]) carryOut(ctx context.Context, calls []*Call[Q, R]) {
	b.do(ctx, calls)
	for _, c := range calls {
		if !c.later && !c.Finished() {
			var none R
			c.Done(none, errors.New("batch: a call was left without a result"))
		}
	}
}

// take takes the next batch from the queue, in order. A call whose key is in the batch already waits for the next one, and so
// does everything with that key behind it. With an empty queue the worker is signed off under the same lock, so that no call
// is left behind.
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

// Close refuses new calls and waits for those that were accepted.
func (b *Batcher[Q, R]) Close() {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.running.Wait()
}
