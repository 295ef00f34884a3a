package feed

import (
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

func (w *watch[P]) use(events []*driver.Event[P], end P) {
	w.pending, w.pendingEnd, w.hasPending, w.previousCount = events, end, true, 0
}

// fromPending returns the next event of pending.
func (w *watch[P]) fromPending() (d delivery[P], err error) {
	ev, held := w.heldEvent, w.heldEvent != nil
	if !held {
		ev = w.take()
	}
	if ev != nil && ev.Damage != nil {
		// A retry does not help. A caller that lists again continues after the damage.
		return d, w.end(damageError(ev.Damage))
	}
	return w.advance(ev, held), nil
}

// damageError returns the final error of a watch that has read a damaged change.
func damageError(err error) error {
	return fmt.Errorf("%w: %w: %w", storage.ErrWatchClosed, storage.ErrCompacted, err)
}

// advance moves the watch to an event, or to the end of pending if ev is nil.
func (w *watch[P]) advance(ev *driver.Event[P], held bool) (d delivery[P]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lifetime.Err() != nil {
		return d // closed: the cursor stays before the event
	}
	if ev == nil {
		w.at = w.feed.source.Merge(w.at, w.pendingEnd)
		w.resumedFrom = ""
		w.pending, w.hasPending = nil, false
		return d
	}
	more, known := w.continuesCommit(ev, held)
	if !known {
		w.heldEvent = ev
		w.pending, w.hasPending = nil, false
		return d
	}
	w.heldEvent, w.inCommit = nil, more
	w.at = w.feed.source.Advance(w.at, ev)
	w.resumedFrom = ""
	if w.feed.opts.OnDelivered != nil {
		w.feed.opts.OnDelivered(ev)
	}
	d = delivery[P]{kind: change, event: ev, more: more, at: w.at}
	if w.before != nil {
		d.previous = w.before[ev]
		delete(w.before, ev)
	}
	return d
}

// take removes the next matching event, and the events before it, from pending.
func (w *watch[P]) take() *driver.Event[P] {
	for i, ev := range w.pending {
		// Other events need no step of their own: the next Advance or Merge passes them.
		if w.wants(ev) {
			w.pending = w.pending[i+1:]
			w.previousCount = max(w.previousCount-i-1, 0)
			return ev
		}
	}
	return nil
}

func (w *watch[P]) wants(ev *driver.Event[P]) bool {
	if ev.Damage != nil && w.skipsDamage(storage.UnversionedType{Group: ev.Key.Group, Kind: ev.Key.Kind}) {
		return false
	}
	return w.filter.Match(&ev.Key) && (w.inHistory || !w.feed.source.Contains(w.at, ev))
}

// continuesCommit reports whether this watch's next event belongs to the same commit as ev. ev precedes pending or, if it was held,
// the batch in pending. known is false if the batch ends inside the commit without another event for this watch.
func (w *watch[P]) continuesCommit(ev *driver.Event[P], held bool) (more, known bool) {
	if ev.Commit == 0 {
		return false, true
	}
	cut := ev.CommitContinues && !held
	for _, other := range w.pending {
		switch {
		case other.Commit != ev.Commit:
			return false, true
		case w.wants(other):
			return true, true
		}
		cut = other.CommitContinues
	}
	return false, !cut
}
