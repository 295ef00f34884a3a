package feed

import (
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

func (w *watch[P]) use(events []*driver.Event[P], end P) {
	w.pending, w.pendEnd, w.using, w.previousCount = events, end, true, 0
}

// fromPending looks for the next event among those at hand.
func (w *watch[P]) fromPending() (d delivery[P], err error) {
	ev, held := w.heldEvent, w.heldEvent != nil
	if !held {
		ev = w.take()
	}
	if ev != nil && ev.Damage != nil {
		// No waiting mends it. Whoever lists again goes on behind it.
		return d, w.end(damageError(ev.Damage))
	}
	return w.pass(ev, held), nil
}

// damageError is the final error of a watch that read a damaged change.
func damageError(err error) error {
	return fmt.Errorf("%w: %w: %w", storage.ErrWatchClosed, storage.ErrCompacted, err)
}

// pass moves on to an event, or to the position after those at hand where it is nil.
func (w *watch[P]) pass(ev *driver.Event[P], held bool) (d delivery[P]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ev == nil {
		w.at = w.feed.source.Merge(w.at, w.pendEnd)
		w.resumedFrom = ""
		w.pending, w.using = nil, false
		return d
	}
	more, known := w.goesOn(ev, held)
	if !known {
		w.heldEvent = ev
		w.pending, w.using = nil, false
		return d
	}
	w.heldEvent, w.open = nil, more
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

// take removes the next event for this watch from pending, with what stands before it.
func (w *watch[P]) take() *driver.Event[P] {
	for i, ev := range w.pending {
		// What the filter leaves out needs no step of its own: the next Advance or Merge passes it.
		if w.wants(ev) {
			w.pending = w.pending[i+1:]
			w.previousCount = max(w.previousCount-i-1, 0)
			return ev
		}
	}
	return nil
}

func (w *watch[P]) wants(ev *driver.Event[P]) bool {
	return w.filter.Match(&ev.Key) && (w.catching || !w.feed.source.Contains(w.at, ev))
}

// goesOn reports whether this watch's next event is of the same commit as ev, which stands before pending, or, if it was held,
// before the batch that pending is. It is not known where the batch ends inside the commit with nothing for this watch.
func (w *watch[P]) goesOn(ev *driver.Event[P], held bool) (more, known bool) {
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
