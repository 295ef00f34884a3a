package inmem

import (
	"context"
	"fmt"
	"sync"

	"github.com/ashlar-dev/storage/driver"
)

// What a store keeps of its history where nobody says otherwise: so many changes, and so many bytes.
const (
	defaultHistory      = 100_000
	defaultHistoryBytes = 64 << 20
)

// history is the newest changes of a store, bounded in number and in bytes, for watches that fall behind and for cursors. The
// store's lock guards it.
//
// A reader is the part of a handle that takes changes over into its feed; it waits for nobody else. What a reader has not taken
// over is not dropped: otherwise a burst of large writes, faster than a processor is free for the reader, would end all watches.
// Instead writers wait for the reader, so that the bound holds.
type history struct {
	events []*driver.Event[position] // those after from
	items  []*item                   // what they have put into the tree
	from   position
	bytes  int // of the events, and of what was stored at from and is not any more

	removeDeletion func(deletion *item)

	maxEvents, maxBytes int
	readers             map[*reader]struct{}
	spaceCond           sync.Cond // the readers have moved on
}

// reader is where one has come to.
type reader struct{ at position }

// reset empties the history, which goes on after a position.
func (h *history) reset(at position) { h.events, h.items, h.bytes, h.from = nil, nil, 0, at }

// setLimits sets the bounds; 0 leaves one as it is.
func (h *history) setLimits(events, bytes int) {
	if events > 0 {
		h.maxEvents = events
	}
	if bytes > 0 {
		h.maxBytes = bytes
	}
	h.trim()
}

// record adds a change, and the item that it has put into the tree.
func (h *history) record(it *item, ev *driver.Event[position]) {
	h.events, h.items = append(h.events, ev), append(h.items, it)
	h.bytes += weight(ev)
	if before := it.before.Load(); before != nil {
		before.hasSuccessor = true
		if before.at <= h.from {
			h.bytes += before.weight()
		}
	}
	h.trim()
}

func (h *history) full() bool { return len(h.events) > h.maxEvents || h.bytes > h.maxBytes }

// waitForSpace waits until there is room for a change. The caller holds the lock, which others get meanwhile.
func (h *history) waitForSpace() {
	for h.full() {
		h.spaceCond.Wait()
	}
}

// trim drops the oldest changes that all readers have taken over. It moves the rest only once in a while, so that a change
// costs the same however many are kept.
func (h *history) trim() {
	if !h.full() {
		return
	}
	taken := h.readPosition()
	for h.full() && h.from < taken {
		h.dropOldest()
	}
}

// readPosition returns how far all readers have come.
func (h *history) readPosition() position {
	taken := h.from + position(len(h.events))
	for r := range h.readers {
		taken = min(taken, r.at)
	}
	return taken
}

// dropOldest forgets the oldest change, and what was stored before it. What it has stored itself stays for as long as it is the newest thing
// that was stored at from.
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

// compact forgets what lies before a position, once all readers have come so far. It forgets nothing if ctx ends before that. The
// caller holds the lock, which others get meanwhile.
func (h *history) compact(ctx context.Context, until position) error {
	if h.readPosition() < until {
		defer context.AfterFunc(ctx, func() {
			h.spaceCond.L.Lock()
			defer h.spaceCond.L.Unlock()
			h.spaceCond.Broadcast()
		})()
	}
	for h.readPosition() < until {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("nothing was forgotten, watches have yet to take it over: %w", err)
		}
		h.spaceCond.Wait()
	}
	for h.from < until {
		h.dropOldest()
	}
	return nil
}

// addReader adds a reader. The caller calls leave, with the lock, when it is done.
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

// take returns what comes after the reader's position, as much as a page may hold, and moves the reader on. The caller has seen
// that the position is kept.
func (h *history) take(r *reader) []*driver.Event[position] {
	events := h.since(r.at, takeEvents)
	if len(events) > 0 {
		r.at = events[len(events)-1].At
		h.trim()
		h.spaceCond.Broadcast()
	}
	return events
}

// takeEvents is the number of changes that a reader takes over at a time: what a watch that stands still may hold on to.
const takeEvents = 500

// since returns changes after at: limit of them, driver.PageBytes, and the rest of the last one's transaction at most, but one in any
// case. The caller has seen that at is kept.
func (h *history) since(at position, limit int) []*driver.Event[position] {
	events := h.events[at-h.from:]
	n, bytes := 0, 0
	for n < min(limit, len(events)) && bytes < driver.PageBytes {
		bytes += weight(events[n])
		n++
	}
	for 0 < n && n < len(events) && events[n].Commit != 0 && events[n].Commit == events[n-1].Commit {
		n++
	}
	// A copy: trim clears what it drops.
	return append([]*driver.Event[position](nil), events[:n]...)
}
