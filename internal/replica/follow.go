package replica

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// Change is a change that a follower returns.
type Change[V any] struct {
	Old, New *Row[V] // nil for none
	Cursor   string  // at or behind the change; "" if unknown
}

// Follower reads the log from a View on. Next must not be called concurrently; Close may be called from any goroutine.
type Follower[V any] struct {
	state    *state[V]
	position logPosition[V]
	out      []Change[V]            // of the current commit
	inCommit bool                   // the current commit has more changes
	overlays map[key.Key]overlay[V] // unconfirmed local writes that the View included
	lagErr   error                  // set when the follower has fallen behind the log
	isClosed atomic.Bool
	closeCh  chan struct{}
}

// BorrowAndFollow returns a borrowed View and a follower of the changes after it.
func (l *localWrites[V]) BorrowAndFollow() (*View[V], *Follower[V]) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.views.borrow(), &Follower[V]{state: l.state, position: l.log.endPosition(), overlays: l.overlays(), closeCh: make(chan struct{})}
}

// Next blocks until the next commit that is not empty and returns its changes, which are valid until the next call. [storage.ErrWatchClosed] is
// final: the follower has fallen behind the log, or the follower or the replica was closed.
func (f *Follower[V]) Next(ctx context.Context) ([]Change[V], error) {
	if !f.inCommit {
		f.out = f.out[:0]
	}
	for {
		if err := f.Err(ctx); err != nil {
			return nil, err
		}
		c, err := f.read(ctx)
		if err != nil {
			return nil, err
		}
		f.inCommit = c.more
		f.translate(c)
		if !f.inCommit && len(f.out) > 0 {
			return f.out, nil
		}
	}
}

// Err returns the error of Next: the follower's final error, or the context's.
func (f *Follower[V]) Err(ctx context.Context) error {
	switch {
	case f.isClosed.Load():
		return fmt.Errorf("%w: the follower was closed", storage.ErrWatchClosed)
	case f.state.hasEnded.Load():
		return fmt.Errorf("%w: %w", storage.ErrWatchClosed, f.state.Err())
	case f.lagErr != nil:
		return f.lagErr
	}
	return ctx.Err()
}

// read blocks until the next change of the log and returns it.
func (f *Follower[V]) read(ctx context.Context) (*change[V], error) {
	c, isKept := f.position.next()
	if c == nil && isKept {
		if err := f.state.waitFor(ctx, f.closeCh, func() bool {
			c, isKept = f.position.next()
			return c != nil || !isKept
		}); err != nil {
			return nil, f.Err(ctx)
		}
	}
	if !isKept {
		f.lagErr = fmt.Errorf("%w: the reader fell behind the log of changes", storage.ErrWatchClosed)
		return nil, f.lagErr
	}
	return c, nil
}

// translate appends a change as seen by a reader of the View, which may have included local writes before the watch delivered them.
func (f *Follower[V]) translate(c *change[V]) {
	old := c.before
	if o, exists := f.overlays[c.key]; exists {
		if c.settles || o.endsAt(c.version, c.after == nil) {
			delete(f.overlays, c.key)
		} else {
			o.notePassed(c.version)
			f.overlays[c.key] = o
		}
		if !c.settles {
			return // the View included this change, or a later one
		}
		old = o.row
	}
	if !same(old, c.after) {
		f.out = append(f.out, Change[V]{Old: old, New: c.after, Cursor: c.cursor})
	}
}

// Close ends the follower. Closing twice is allowed.
func (f *Follower[V]) Close() {
	if !f.isClosed.Swap(true) {
		close(f.closeCh)
	}
}
