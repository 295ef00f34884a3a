package replica

import (
	"context"
	"fmt"
	"sync"

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
	r      *Replica[V]
	at     int64                  // of the first change that is not in rest
	rest   []change[V]            // was read from the log, which never changes what is in it
	out    []Change[V]            // of the commit under way
	within bool                   // a commit is under way
	own    map[key.Key]overlay[V] // what the View showed beyond what the watch had brought
	fallen error                  // it fell behind the log
	once   sync.Once
	done   chan struct{}
}

// ViewAndFollow returns a View, and a follower of what comes after it.
func (r *Replica[V]) ViewAndFollow() (*View[V], *Follower[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.viewed(), &Follower[V]{r: r, at: r.log.end, own: r.overlays(), done: make(chan struct{})}
}

// Next returns the changes of the next commit that is not empty, waiting for one if need be. They are good until the next call.
// [storage.ErrWatchClosed] is final: the follower has fallen behind the log, or it was closed, or the replica.
func (f *Follower[V]) Next(ctx context.Context) ([]Change[V], error) {
	if !f.within {
		f.out = f.out[:0]
	}
	for {
		if err := f.Ended(ctx); err != nil {
			return nil, err
		}
		if len(f.rest) == 0 {
			if err := f.read(ctx); err != nil {
				return nil, err
			}
			continue
		}
		c := &f.rest[0]
		f.rest, f.within = f.rest[1:], c.more
		f.show(c)
		if !f.within && len(f.out) > 0 {
			return f.out, nil
		}
	}
}

// Ended returns why Next returns no more changes: it is over for good, or the context is.
func (f *Follower[V]) Ended(ctx context.Context) error {
	select {
	case <-f.done:
		return fmt.Errorf("%w: it was closed", storage.ErrWatchClosed)
	case <-f.r.done:
		return fmt.Errorf("%w: %w", storage.ErrWatchClosed, f.r.Err())
	default:
	}
	if f.fallen != nil {
		return f.fallen
	}
	return ctx.Err()
}

// read reads what the log has, or waits until it has something.
func (f *Follower[V]) read(ctx context.Context) error {
	r := f.r
	r.mu.Lock()
	changes, ok := r.log.from(f.at)
	switch {
	case !ok:
		r.mu.Unlock()
		f.fallen = fmt.Errorf("%w: the reader fell behind the changes that are kept", storage.ErrWatchClosed)
		return f.fallen
	case len(changes) > 0:
		f.rest, f.at = changes, f.at+int64(len(changes))
		r.mu.Unlock()
		return nil
	case r.ended != nil:
		defer r.mu.Unlock()
		return fmt.Errorf("%w: %w", storage.ErrWatchClosed, r.ended)
	}
	wake := r.wait()
	r.mu.Unlock()
	select {
	case <-wake:
		return nil
	case <-f.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// show appends what a change is for who has seen the View.
func (f *Follower[V]) show(c *change[V]) {
	old := c.base
	if o, over := f.own[c.key]; over {
		if c.settles || o.settledBy(c.version, c.now == nil) {
			delete(f.own, c.key)
		} else {
			o.pass(c.version)
			f.own[c.key] = o
		}
		if !c.settles {
			return // the View has shown it, or what came after it
		}
		old = o.row
	}
	if !same(old, c.now) {
		f.out = append(f.out, Change[V]{Old: old, New: c.now, Cursor: c.cursor})
	}
}

// Close ends the follower. Closing twice is fine.
func (f *Follower[V]) Close() { f.once.Do(func() { close(f.done) }) }
