package backend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/telemetry"
)

// Backend is a storage backend over a Driver. It implements storage.Backend, storage.Pager, storage.Resumer and storage.Transactor.
// Its watches are storage.Bookmarkers if the driver's Source is a Prover. If the driver is a driver.Historian, storage.As finds a
// history.Historian, and the watches are history.Recallers. An adapter's exported type may embed a Backend.
type Backend[P any] struct {
	driver driver.Driver[P]
	// The optional interfaces of the driver, nil if it does not implement them.
	historian   driver.Historian[P]
	pager       driver.Pager[P]
	snapshotter driver.Snapshotter[P]

	opts   Options[P]
	source driver.Source[P]
	feed   *feed.Feed[P]
	bound  sharedDeadline

	swaps     recentMap[driver.Key, swapState] // the state of a key after this handle's last swap
	positions recentMap[int64, P]              // the positions of revisions that this handle has read as the newest

	closed   atomic.Bool
	closing  sync.Once
	closeErr error
}

// New returns a backend over a driver, and takes ownership of the driver. It panics if the driver is neither a driver.Historian nor
// both a driver.Pager and a driver.Snapshotter.
func New[P any](d driver.Driver[P], opts Options[P]) *Backend[P] {
	b := &Backend[P]{driver: d, opts: opts.withDefaults(), source: d.Source()}
	b.swaps.limit, b.positions.limit = maxSwaps, maxPositions
	b.historian, _ = d.(driver.Historian[P])
	b.pager, _ = d.(driver.Pager[P])
	b.snapshotter, _ = d.(driver.Snapshotter[P])
	if b.historian == nil && (b.pager == nil || b.snapshotter == nil) {
		panic(fmt.Sprintf("backend: %T is neither a driver.Historian nor both a driver.Pager and a driver.Snapshotter", d))
	}
	var before func(context.Context, []*driver.Event[P]) ([]*driver.Version, error)
	if b.historian != nil {
		before = b.before
	}
	b.feed = feed.New(feedSource(b), feed.Options[P]{
		MaxEvents:   b.opts.LogEvents,
		Outage:      b.opts.Outage,
		IdleTimeout: b.opts.IdleTimeout,
		InSnapshot:  cursor.Encode(cursor.Snapshot, d.StoreID(), nil),
		OnDelivered: b.opts.OnDelivered,
		Telemetry:   b.opts.Telemetry,
		Before:      before,
	})
	return b
}

// before calls Historian.Before with a deadline.
func (b *Backend[P]) before(ctx context.Context, events []*driver.Event[P]) ([]*driver.Version, error) {
	ctx, done := b.withTimeout(ctx)
	defer done()
	return b.historian.Before(ctx, events)
}

// withTimeout returns ctx with the deadline of a call.
func (b *Backend[P]) withTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	if b.opts.Timeout <= 0 {
		return ctx, unbound
	}
	return context.WithTimeout(ctx, b.opts.Timeout)
}

// readMove reads the fence, and returns the error of a strong read of a store that has moved.
func (b *Backend[P]) readMove(ctx context.Context) error {
	m, moves := b.driver.(driver.Mover)
	if !moves {
		return nil
	}
	ctx, done := b.withTimeout(ctx)
	defer done()
	state, err := m.Fence(ctx)
	return cmp.Or(err, state.ReadError(ctx))
}

// feedSource returns the driver's Source with cursors. It is a Prover if the driver's Source is. Its Run ends when the store has moved, if
// the driver can prove that all changes were published.
func feedSource[P any](b *Backend[P]) feed.Source[P] {
	s := withCursors[P]{b.source, b}
	p, proves := b.source.(driver.Prover[P])
	if !proves {
		return s
	}
	serial := &serialProver[P]{Prover: p, turn: make(chan struct{}, 1)}
	if _, moves := b.driver.(driver.Mover); moves {
		until := &moveWatcher[P]{b.source, serial, b.readMove, make(chan struct{}, 1)}
		return struct {
			untilMoved[P]
			driver.Prover[P]
		}{untilMoved[P]{s, until}, unmovedProver[P]{serial, until}}
	}
	return struct {
		withCursors[P]
		driver.Prover[P]
	}{s, serial}
}

// untilMoved is a source whose Run ends when the store has moved.
type untilMoved[P any] struct {
	withCursors[P]
	until *moveWatcher[P]
}

// Run implements feed.Source.
func (s untilMoved[P]) Run(ctx context.Context, ready func(P), publish func(events []*driver.Event[P], end P)) error {
	return s.until.run(ctx, ready, publish)
}

type withCursors[P any] struct {
	driver.Source[P]
	backend *Backend[P]
}

// Cursor implements feed.Source.
func (s withCursors[P]) Cursor(at P) string { return s.backend.cursor(at) }

func (b *Backend[P]) cursor(at P) string {
	return cursor.Encode(cursor.Watch, b.driver.StoreID(), b.source.Encode(at))
}

// Close implements storage.Backend.
func (b *Backend[P]) Close() error {
	b.closing.Do(func() {
		b.closed.Store(true)
		b.feed.Close()
		b.closeErr = b.driver.Close()
		b.opts.Telemetry.Close()
	})
	return b.closeErr
}

// MaxOps implements storage.Transactor.
func (b *Backend[P]) MaxOps() int { return b.opts.MaxOps }

// begin starts every call, after its arguments were checked. It returns the first of the errors that apply: storage.ErrClosed, the
// problems of the arguments, the context's error. The returned context has a deadline. The caller ends the running call.
func (b *Backend[P]) begin(ctx context.Context, operation telemetry.Operation, problems ...error) (context.Context, runningCall, error) {
	if err := b.enter(ctx, problems...); err != nil {
		return nil, runningCall{}, err
	}
	cancel := unbound
	if _, bounded := ctx.Deadline(); !bounded && b.opts.Timeout >= 0 {
		if ctx == context.Background() {
			ctx = b.bound.context(b.opts.Timeout)
		} else {
			ctx, cancel = context.WithTimeout(ctx, b.opts.Timeout)
		}
	}
	ctx, call := b.start(ctx, cancel, operation)
	return ctx, call, nil
}

// start starts the recording of a call.
func (b *Backend[P]) start(ctx context.Context, cancel context.CancelFunc, operation telemetry.Operation) (context.Context, runningCall) {
	ctx, telemetryCall := b.opts.Telemetry.Begin(ctx, operation)
	return ctx, runningCall{ctx, cancel, telemetryCall}
}

// runningCall is a call that has passed the checks of begin.
type runningCall struct {
	ctx           context.Context
	cancel        context.CancelFunc
	telemetryCall telemetry.Call
}

// end frees the deadline of a call and records its result.
func (c *runningCall) end(err *error) {
	c.telemetryCall.End(c.ctx, *err)
	c.cancel()
}

// unbound is the cancel function of a context without a timer. A function literal in a generic method would be allocated each time.
func unbound() {}

// enter is begin without a deadline.
func (b *Backend[P]) enter(ctx context.Context, problems ...error) error {
	if b.closed.Load() {
		return storage.ErrClosed
	}
	return cmp.Or(cmp.Or(problems...), ctx.Err())
}

// callError adds the operation and the key to the error of a call. A group version mismatch is returned unchanged and by value. An
// expired deadline matches storage.ErrInconsistent in addition.
func callError(operation string, on fmt.Stringer, err error) error {
	var mismatch storage.GroupVersionMismatchError
	if errors.As(err, &mismatch) {
		return mismatch
	}
	if errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, storage.ErrInconsistent) {
		err = fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
	}
	err = driver.Unreachable(err)
	if on == nil {
		return fmt.Errorf("%s: %w", operation, err)
	}
	return fmt.Errorf("%s %v: %w", operation, on, err)
}
