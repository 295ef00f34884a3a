package replica

import (
	"context"
	"fmt"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// change is a step of the log.
type change[V any] struct {
	key     key.Key
	base    *Row[V] // before, in what the watch has brought; nil for nothing
	now     *Row[V] // after; nil for nothing
	version string  // of now, or of what was deleted
	cursor  string
	size    int
	settles bool // what own writes have laid over the key counts no more
	more    bool // the commit goes on
}

// Change is a change that a follower returns.
type Change[V any] struct {
	Old, New *Row[V] // nil for nothing
	Cursor   string  // at or behind it; "" if not known
}

// The bounds of a log, unless the options say otherwise.
const (
	logLength = 65536
	logBytes  = 32 << 20
)

// changeLog is the newest changes.
type changeLog[V any] struct {
	changes []change[V]
	first   int64 // the place of changes[0]
	bytes   int
	most    int
	room    int
}

func newLog[V any](length, bytes int) changeLog[V] {
	if length == 0 {
		length = logLength
	}
	if bytes == 0 {
		bytes = logBytes
	}
	return changeLog[V]{most: length, room: bytes}
}

// end is the place of the next change.
func (l *changeLog[V]) end() int64 { return l.first + int64(len(l.changes)) }

// touches reports whether there is a change of a key from a place on, or may have been one that is forgotten, and the place of the next
// change.
func (l *changeLog[V]) touches(k key.Key, at int64) (bool, int64) {
	if at < l.first {
		return true, l.end()
	}
	for _, c := range l.changes[at-l.first:] {
		if c.key == k {
			return true, l.end()
		}
	}
	return false, l.end()
}

// append puts a commit behind the others, and forgets the oldest ones beyond the bounds.
func (l *changeLog[V]) append(commit []change[V]) {
	for i := range commit {
		commit[i].more = i+1 < len(commit)
		l.bytes += commit[i].size
	}
	l.changes = append(l.changes, commit...)
	over := 0
	for n := len(l.changes); n-over > l.most || l.bytes > l.room && over < n; over++ {
		l.bytes -= l.changes[over].size
		l.changes[over] = change[V]{}
	}
	l.changes, l.first = l.changes[over:], l.first+int64(over)
}

// Follower reads the log from a View on. Next is for one goroutine at a time; Close may be called from any.
type Follower[V any] struct {
	r    *Replica[V]
	at   int64
	own  map[key.Key]overlay[V] // what the View showed beyond what the watch had brought
	once sync.Once
	done chan struct{}
}

// Follow returns a follower of what comes after a View.
func (r *Replica[V]) Follow(v *View[V]) *Follower[V] {
	f := &Follower[V]{r: r, at: v.at, done: make(chan struct{})}
	if len(v.own) > 0 {
		f.own = make(map[key.Key]overlay[V], len(v.own))
		for k, o := range v.own {
			f.own[k] = o
		}
	}
	return f
}

// Next returns the changes of the next commit that is not empty, waiting for one if need be. [storage.ErrWatchClosed] is final: the
// follower has fallen behind the log, or it was closed, or the replica.
func (f *Follower[V]) Next(ctx context.Context) ([]Change[V], error) {
	for {
		select {
		case <-f.done:
			return nil, fmt.Errorf("%w: it was closed", storage.ErrWatchClosed)
		default:
		}
		f.r.mu.Lock()
		commit, err := f.commit()
		ended := f.r.ended
		var wake <-chan struct{}
		if commit == nil && err == nil {
			wake = f.r.wait()
		}
		f.r.mu.Unlock()
		if err != nil {
			return nil, err
		}
		if out := f.shown(commit); len(out) > 0 {
			return out, nil
		}
		if commit != nil {
			continue
		}
		if ended != nil {
			return nil, fmt.Errorf("%w: %w", storage.ErrWatchClosed, ended)
		}
		select {
		case <-wake:
		case <-f.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// commit returns the next commit of the log, nil if there is none yet. The caller holds the lock.
func (f *Follower[V]) commit() ([]change[V], error) {
	l := &f.r.log
	if f.at < l.first {
		return nil, fmt.Errorf("%w: the reader fell behind the changes that are kept", storage.ErrWatchClosed)
	}
	rest := l.changes[f.at-l.first:]
	for i := range rest {
		if !rest[i].more {
			f.at += int64(i) + 1
			return append([]change[V](nil), rest[:i+1]...), nil
		}
	}
	return nil, nil
}

// shown returns what a commit is for who has seen the View.
func (f *Follower[V]) shown(commit []change[V]) (out []Change[V]) {
	for i := range commit {
		c := &commit[i]
		old := c.base
		if o, over := f.own[c.key]; over {
			itself := o.is(c.version, c.now == nil)
			if itself || c.settles {
				delete(f.own, c.key)
			}
			if !c.settles {
				continue // the View has shown it, or what came after it
			}
			old = o.row
		}
		if !same(old, c.now) {
			out = append(out, Change[V]{Old: old, New: c.now, Cursor: c.cursor})
		}
	}
	return out
}

// Close ends the follower. Closing twice is fine.
func (f *Follower[V]) Close() { f.once.Do(func() { close(f.done) }) }
