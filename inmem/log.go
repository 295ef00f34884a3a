package inmem

import (
	"context"
	"fmt"
	"sync"

	"github.com/ashlar-dev/storage/driver"
)

// Defaults of the bounds on history.
const (
	defaultHistory      = 100_000
	defaultHistoryBytes = 64 << 20
)

// history holds the newest changes of a store for slow watches, cursors, later pages and snapshots. It is bounded in
// number and in bytes. The store's lock guards it.
//
// A reader passes changes on to the feed of a handle and never blocks on anything else. History keeps the changes that
// a reader has not taken yet. Otherwise a burst of large writes could outpace the scheduler and end all watches.
// Instead writers wait for readers, so the bound holds.
type history struct {
	events []*driver.Event[position] // after from
	items  []*item                   // the items that the events put into the tree
	from   position
	bytes  int // of the events, and of the replaced items that were stored at from

	removeDeletion func(deletion *item)

	maxEvents, maxBytes int
	readers             map[*reader]struct{}
	spaceCond           sync.Cond // signalled when readers advance or the bounds change
}

// reader holds the position of a reader.
type reader struct{ at position }

// reset empties the history and continues it after a position.
func (h *history) reset(at position) { h.events, h.items, h.bytes, h.from = nil, nil, 0, at }

// setLimits sets the bounds. A bound of 0 keeps the present one. Waiting writers check the new bounds.
func (h *history) setLimits(events, bytes int) {
	if events > 0 {
		h.maxEvents = events
	}
	if bytes > 0 {
		h.maxBytes = bytes
	}
	h.trim()
	h.spaceCond.Broadcast()
}

// record appends a change and its item.
func (h *history) record(it *item, ev *driver.Event[position]) {
	h.events, h.items = append(h.events, ev), append(h.items, it)
	h.bytes += weight(ev)
	if before := it.before.Load(); before != nil {
		before.hasSuccessor = true
		if before.at <= h.from {
			h.bytes += before.weight()
		}
	}
}

func (h *history) full() bool { return len(h.events) > h.maxEvents || h.bytes > h.maxBytes }

// await blocks until a condition holds, which readers that advance or new bounds may fulfil, or until ctx ends. The caller holds the
// lock, which is released during the wait.
func (h *history) await(ctx context.Context, condition func() bool) error {
	if condition() {
		return nil
	}
	defer context.AfterFunc(ctx, func() {
		h.spaceCond.L.Lock()
		defer h.spaceCond.L.Unlock()
		h.spaceCond.Broadcast()
	})()
	for !condition() {
		if err := ctx.Err(); err != nil {
			return err
		}
		h.spaceCond.Wait()
	}
	return nil
}

// trim drops the oldest transactions until the bounds hold, except those that a reader has not taken. It reslices, so
// its cost does not depend on the number of changes that remain. The last transaction must be complete.
func (h *history) trim() {
	if !h.full() {
		return
	}
	taken := h.readPosition()
	for h.full() && h.from < taken {
		h.dropUntil(position(h.events[0].Revision))
	}
}

// readPosition returns the lowest position of all readers.
func (h *history) readPosition() position {
	taken := h.from + position(len(h.events))
	for r := range h.readers {
		taken = min(taken, r.at)
	}
	return taken
}

// dropUntil drops the changes up to a position.
func (h *history) dropUntil(at position) {
	for h.from < at {
		h.dropOldest()
	}
}

// dropOldest drops the oldest change and the item that it replaced. The item of the change itself stays while it is the
// newest one at or before from.
func (h *history) dropOldest() {
	ev, it := h.events[0], h.items[0]
	h.events[0], h.items[0] = nil, nil
	h.events, h.items = h.events[1:], h.items[1:]
	h.from = ev.At
	h.bytes -= weight(ev)
	if before := it.before.Load(); before != nil {
		h.bytes -= before.weight()
		it.before.Store(nil)
	}
	switch {
	case it.hasSuccessor:
		h.bytes += it.weight()
	case it.isDeletion():
		h.removeDeletion(it)
	}
}

// compact drops the changes up to a position once all readers have reached it. It drops nothing if ctx ends earlier.
// The caller holds the lock, which is released during the wait.
func (h *history) compact(ctx context.Context, until position) error {
	if err := h.await(ctx, func() bool { return h.readPosition() >= until }); err != nil {
		return fmt.Errorf("history was not compacted: watches have not read it up to revision %d: %w", until, err)
	}
	h.dropUntil(until)
	return nil
}

// lastCommit returns the position after the last transaction that is complete at a position, which history holds.
func (h *history) lastCommit(at position) position {
	for at > h.from && position(h.events[at-h.from-1].Revision) > at {
		at--
	}
	return at
}

// addReader adds a reader. The caller must call leave, with the lock held, when the reader ends.
func (h *history) addReader(at position) (r *reader, leave func()) {
	r = &reader{at}
	if h.readers == nil {
		h.readers = make(map[*reader]struct{})
	}
	h.readers[r] = struct{}{}
	return r, func() {
		delete(h.readers, r)
		h.trim()
		h.spaceCond.Broadcast()
	}
}

// take returns the next page of changes after the reader's position and advances the reader. The caller has checked
// that history holds the position.
func (h *history) take(r *reader) []*driver.Event[position] {
	events := h.since(r.at, takeEvents)
	if len(events) > 0 {
		r.at = events[len(events)-1].At
		h.trim()
		h.spaceCond.Broadcast()
	}
	return events
}

// takeEvents is the maximum number of changes in a page, which bounds the memory of a stalled watch.
const takeEvents = 500

// since returns changes after a position. It stops after limit changes, or once they have driver.PageBytes bytes, but
// completes the last transaction. It returns at least one change if there is any. The caller has checked that history
// holds the position.
func (h *history) since(at position, limit int) []*driver.Event[position] {
	events := h.events[at-h.from:]
	n, bytes := 0, 0
	for n < min(limit, len(events)) && bytes < driver.PageBytes {
		bytes += weight(events[n])
		n++
	}
	for 0 < n && n < len(events) && events[n].Commit == events[n-1].Commit {
		n++
	}
	// Copy, because dropOldest clears the entries that it drops.
	return append([]*driver.Event[position](nil), events[:n]...)
}
