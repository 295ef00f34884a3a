package replica

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
)

// state is the copy: its rows with local writes applied, its views, and its log of changes.
type state[V any] struct {
	mu                           sync.Mutex // guards all of state, localWrites and views
	rows                         rows[V]
	views                        views[V]
	log                          changeLog[V]
	waiters                      waiters
	barriers                     barriers
	cursor                       string        // of the watch, at or behind all changes in rows
	isLive                       bool          // a watch feeds the copy
	watch                        storage.Watch // that feeds the copy; nil for none
	listNumber, relistFromNumber int64         // barrier numbers of the last list, and of the last call of Relist
	cause                        error         // why no watch feeds the copy; outdated if isLive is set
	healthCh                     chan struct{} // closed at the next change of Health; nil without a waiter
	err                          error         // set when the feed has ended for good
	hasEnded                     atomic.Bool   // err is set
}

// set replaces the row of a key; a nil row removes it. The caller holds the lock.
func (s *state[V]) set(k key.Key, row *Row[V]) {
	s.views.beforeChange(k)
	s.rows.set(k, row)
}

// append appends a commit to the log and wakes the waiters. The caller holds the lock.
func (s *state[V]) append(commit []change[V]) {
	if len(commit) == 0 {
		return
	}
	s.log.append(commit)
	s.views.advance()
	s.waiters.notify()
}

// end records that the feed has ended and fails all waiting calls.
func (s *state[V]) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
	s.hasEnded.Store(true)
	s.notifyHealth()
	s.barriers.end(err)
	s.waiters.release()
}

// interrupt records that no watch feeds the copy. If the store has moved, no later watch answers the pending barriers. The caller holds the lock.
func (s *state[V]) interrupt(err error) {
	s.isLive, s.watch, s.cause = false, nil, err
	s.notifyHealth()
	s.barriers.setWatch(nil)
	if errors.Is(err, storage.ErrMoved) {
		s.barriers.end(fmt.Errorf("the copy is not updated: %w", err))
	}
}

// waitFor blocks until cond, which is called with the lock held, returns true. It returns early if the feed or ctx has ended, with the error, and
// if cancel, which may be nil, is closed.
func (s *state[V]) waitFor(ctx context.Context, cancel <-chan struct{}, cond func() bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for !cond() {
		if s.err != nil {
			return s.err
		}
		wake := s.waiters.add()
		s.mu.Unlock()
		var err error
		select {
		case <-wake:
		case <-cancel:
			err = context.Canceled
		case <-ctx.Done():
			err = ctx.Err()
		}
		s.mu.Lock()
		if err != nil {
			return s.explain(err)
		}
	}
	return nil
}

// AwaitChange waits until a key has changed since a View. version is the key's version in the View, "" for absent. A change that was reverted counts,
// such as a creation and a deletion. A relist counts too, because it hides such changes.
func (s *state[V]) AwaitChange(ctx context.Context, v *View[V], k key.Key, version string) error {
	logEnd := int64(-1)
	return s.waitFor(ctx, nil, func() bool {
		if logEnd < 0 {
			logEnd = v.logEnd
		}
		current := ""
		if row := s.rows.get(k); row != nil {
			current = row.Version
		}
		var isTouched bool
		isTouched, logEnd = s.log.touches(k, logEnd)
		return current != version || isTouched || s.views.listCount != v.listCount
	})
}

// Barrier waits until the Views made after the call include everything that was acknowledged, to any program, before the call. Waiting callers share a
// request: a call during a request shares the next one. It fails with [storage.ErrInvalid] if the backend's watches are not a [storage.Bookmarker].
func (s *state[V]) Barrier(ctx context.Context) error {
	s.mu.Lock()
	if !s.barriers.haveBookmarks {
		s.mu.Unlock()
		return fmt.Errorf("%w: the copy cannot prove its progress, because the backend's watches are not a storage.Bookmarker", storage.ErrInvalid)
	}
	if s.err != nil {
		defer s.mu.Unlock()
		return s.err
	}
	requested := s.barriers.request()
	s.mu.Unlock()
	select {
	case <-requested.answerCh:
		return requested.err
	case <-ctx.Done():
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.explain(ctx.Err())
	}
}

// Relist ends the watch, and waits until the store was listed anew: Views made after the call include everything that was acknowledged, to any
// program, before the call. It is for backends without bookmarks; a [Replica.Barrier] costs much less.
func (s *state[V]) Relist(ctx context.Context) error {
	s.mu.Lock()
	s.barriers.requestCount++
	number := s.barriers.requestCount
	s.relistFromNumber = number
	if s.watch != nil {
		s.watch.Close()
	}
	s.mu.Unlock()
	return s.waitFor(ctx, nil, func() bool { return s.listNumber >= number })
}

// explain adds the reason why the copy is not updated to the error of a call that has waited for the copy. The caller holds the lock.
func (s *state[V]) explain(err error) error {
	if s.isLive || s.cause == nil {
		return err
	}
	return fmt.Errorf("%w: the copy is not updated: %w", err, s.cause)
}

// Health returns the reason why the copy is not updated at present; nil while a watch feeds it.
func (s *state[V]) Health() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return s.err
	case s.isLive:
		return nil
	}
	return fmt.Errorf("the copy is not updated: %w", s.cause)
}

// HealthChanged returns a channel that is closed when the result of Health may have changed.
func (s *state[V]) HealthChanged() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.healthCh == nil {
		s.healthCh = make(chan struct{})
	}
	return s.healthCh
}

// notifyHealth wakes the callers that wait for a change of Health. The caller holds the lock.
func (s *state[V]) notifyHealth() {
	if s.healthCh != nil {
		close(s.healthCh)
		s.healthCh = nil
	}
}

// Bookmarks reports whether the backend supports barriers.
func (s *state[V]) Bookmarks() bool { return s.barriers.haveBookmarks }

// Live reports whether a watch feeds the copy. Without one, for example after a loss of history, the copy does not change and barriers are not
// answered.
func (s *state[V]) Live() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.isLive && s.err == nil
}

// HasEnded reports whether Err returns an error. It does not take the lock.
func (s *state[V]) HasEnded() bool { return s.hasEnded.Load() }

// Err returns the reason why the copy is no longer updated; nil while it is.
func (s *state[V]) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

// Stats describes a copy.
type Stats struct {
	Rows    int
	Bytes   int64 // approximate memory of the rows
	Live    bool  // a watch feeds the copy
	Relists int64 // number of times that the store was listed again
}

// Stats returns the size and the state of the copy.
func (s *state[V]) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return Stats{s.rows.trees.rows.Len(), s.rows.bytes, s.isLive && s.err == nil, s.views.listCount}
}

// Get returns the same row as View().Get, without copying trees.
func (s *state[V]) Get(k key.Key) *Row[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows.get(k)
}

// View returns the current copy: a cut, overlaid by all local writes.
func (s *state[V]) View() *View[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views.viewWithTrees()
}

// Borrow returns the same View as View. The caller must Return it soon. It is cheaper if the caller reads few rows.
func (s *state[V]) Borrow() *View[V] {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.views.borrow()
}

// waiters are the goroutines that wait for a change. The replica's lock guards it.
type waiters struct {
	wake    chan struct{} // closed at the next change; nil without waiters
	count   int
	wakeAll chan struct{} // asks the broadcaster to wake the waiters
}

// directWakeLimit is the maximum number of waiters that a change wakes directly.
const directWakeLimit = 4

// add returns a channel that is closed at the next change.
func (w *waiters) add() <-chan struct{} {
	if w.wake == nil {
		w.wake = make(chan struct{})
	}
	w.count++
	return w.wake
}

// notify wakes the waiters, or leaves that to the broadcaster if they are many. So a writer does not have to wake all of them, and several changes
// in a row wake each waiter once.
func (w *waiters) notify() {
	if w.count <= directWakeLimit {
		w.release()
		return
	}
	select {
	case w.wakeAll <- struct{}{}:
	default:
	}
}

// release wakes the waiters.
func (w *waiters) release() {
	if w.wake != nil {
		close(w.wake)
		w.wake, w.count = nil, 0
	}
}
