package replica

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// Change is a change that a follower returns.
type Change[V any] struct {
	Old, New *Row[V] // nil for nothing
	Cursor   string  // at or behind it; "" if not known
}

// Follower reads the log from a View on. Next is for one goroutine at a time; Close may be called from any.
type Follower[V any] struct {
	r        *Replica[V]
	position logPosition[V]
	out      []Change[V]            // of the commit under way
	inCommit bool                   // a commit is under way
	overlays map[key.Key]overlay[V] // what the View showed beyond what the watch had brought
	lagErr   error                  // it fell behind the log
	once     sync.Once
	closed   atomic.Bool
	closeCh  chan struct{}
}

// BorrowAndFollow returns a View, which is borrowed, and a follower of what comes after it.
func (r *Replica[V]) BorrowAndFollow() (*View[V], *Follower[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.borrow(), &Follower[V]{r: r, position: r.log.endPosition(), overlays: r.overlays(), closeCh: make(chan struct{})}
}

// Next returns the changes of the next commit that is not empty, waiting for one if need be. They are good until the next call.
// [storage.ErrWatchClosed] is final: the follower has fallen behind the log, or it was closed, or the replica.
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
		if c == nil {
			continue
		}
		f.inCommit = c.more
		f.translate(c)
		if !f.inCommit && len(f.out) > 0 {
			return f.out, nil
		}
	}
}

// Err returns why Next returns no more changes: it is over for good, or the context is.
func (f *Follower[V]) Err(ctx context.Context) error {
	switch {
	case f.closed.Load():
		return fmt.Errorf("%w: it was closed", storage.ErrWatchClosed)
	case f.r.HasEnded():
		return fmt.Errorf("%w: %w", storage.ErrWatchClosed, f.r.Err())
	case f.lagErr != nil:
		return f.lagErr
	}
	return ctx.Err()
}

// read returns the next change of the log. If there is none yet it waits, and returns nil once there may be one.
func (f *Follower[V]) read(ctx context.Context) (*change[V], error) {
	c, ok := f.position.next()
	if c != nil {
		return c, nil
	}
	if !ok {
		f.lagErr = fmt.Errorf("%w: the reader fell behind the changes that are kept", storage.ErrWatchClosed)
		return nil, f.lagErr
	}
	r := f.r
	r.mu.Lock()
	if c, ok = f.position.next(); c != nil || !ok || r.endErr != nil {
		r.mu.Unlock()
		return c, nil
	}
	wake := r.wait()
	r.mu.Unlock()
	select {
	case <-wake:
	case <-f.closeCh:
	case <-ctx.Done():
	}
	return nil, nil
}

// translate appends what a change is for who has seen the View.
func (f *Follower[V]) translate(c *change[V]) {
	old := c.before
	if o, over := f.overlays[c.key]; over {
		if c.settles || o.endsAt(c.version, c.after == nil) {
			delete(f.overlays, c.key)
		} else {
			o.notePassed(c.version)
			f.overlays[c.key] = o
		}
		if !c.settles {
			return // the View has shown it, or what came after it
		}
		old = o.row
	}
	if !same(old, c.after) {
		f.out = append(f.out, Change[V]{Old: old, New: c.after, Cursor: c.cursor})
	}
}

// Close ends the follower. Closing twice is fine.
func (f *Follower[V]) Close() {
	f.once.Do(func() {
		f.closed.Store(true)
		close(f.closeCh)
	})
}
