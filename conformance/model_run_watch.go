package conformance

import (
	"context"
	"errors"
	"slices"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
)

// openWatch opens a watch. The context of the call ends before the watch is read.
func (m *modelRun) openWatch() {
	h, f := m.handle(), m.draw.filter()
	m.note("watch %d: %v", len(m.watches), f)
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	w, err := h.WatchList(ctx, f.typ, f.tenancy, f.prefix)
	m.succeeds("snapshots of watches", "WatchList", err)
	statuses := slices.Repeat([]changeStatus{statusBefore}, len(m.store.changes))
	m.addWatch(&modelWatch{Watch: w, handle: h, h: m.h, filter: f, inSnapshot: true, snapshot: f.selectFrom(m.store.resources()), statuses: statuses})
}

// addWatch adds a watch, in place of an old one if there are many.
func (m *modelRun) addWatch(w *modelWatch) {
	if m.h.NoHistorian == "" && m.draw.chance(50) {
		recaller, ok := w.Watch.(history.Recaller)
		if !ok {
			failCheck("watches report the previous state", "a watch of a history.Historian, a %T, is no history.Recaller", w.Watch)
		}
		m.note("recall the previous states")
		recaller.Recall()
		w.recalls = true
	}
	if m.watches = append(m.watches, w); len(m.watches) > 5 {
		m.watches[0].Close()
		m.watches = m.watches[1:]
	}
}

// resumeWatch opens a watch from any cursor, usually with another filter and through another handle.
func (m *modelRun) resumeWatch() {
	h, f := m.handle(), m.draw.filter()
	resumer, ok := storage.As[storage.Resumer](h.Backend)
	if !ok || len(m.cursors) == 0 {
		return
	}
	c := pick(m.draw, m.cursors...)
	m.note("watch %d: %v, from cursor %q", len(m.watches), f, c.text)
	ctx, cancel := context.WithCancel(m.ctx)
	defer cancel()
	w, err := resumer.WatchFrom(ctx, f.typ, f.tenancy, f.prefix, c.text)
	m.succeeds("cursors are exact", "WatchFrom", err)
	if got := w.Cursor(); got != c.text {
		failCheck("cursors are exact", "a watch from cursor %q says that it is at %q before its first event", c.text, got)
	}
	resumed := &modelWatch{Watch: w, handle: h, h: m.h, filter: f}
	for i := range m.store.changes {
		status := statusAfter
		if i < len(c.statuses) {
			status = c.statuses[i]
		}
		if status == statusAfter && !f.selects(subject(m.store.changes[i].event).Id) {
			status = statusOpen
		}
		resumed.statuses = append(resumed.statuses, status)
	}
	m.addWatch(resumed)
}

// readWatch reads some events of a watch, or all.
func (m *modelRun) readWatch() {
	if len(m.watches) == 0 {
		return
	}
	i := m.draw.IntN(len(m.watches))
	for n := pick(m.draw, 1, 2, 5, 100); n > 0 && m.watches[i].eventDue(); n-- {
		m.readEvent(i, m.watches[i])
	}
}

func (m *modelRun) readEvent(i int, w *modelWatch) {
	before := w.Cursor()
	ev, err := m.nextOrBookmark(w)
	if err != nil {
		check := "watches are complete and ordered"
		switch {
		case w.inSnapshot:
			check = "snapshots of watches"
		case !w.changeDue(len(m.store.changes)):
			check = "bookmarks come"
		}
		failCheck(check, "Next of watch %d, of %v: %v", i, w.filter, err)
	}
	m.note("watch %d returns %s", i, eventText(ev))
	w.accept(ev)
	if res := subject(ev); res != nil && !w.inSnapshot && m.draw.chance(30) {
		m.read(w.handle, clone(res.Id), eventual)
	}
	if res := ev.GetDelete().GetResource(); res != nil { // as a garbage collector does
		m.checkOwners(w.handle, res.Id)
	}
	switch resumer, ok := storage.As[storage.Resumer](w.handle.Backend); {
	case !ok:
	case w.inSnapshot && m.draw.chance(20):
		if _, err := resumer.WatchFrom(m.ctx, w.filter.typ, w.filter.tenancy, w.filter.prefix, w.Cursor()); !errors.Is(err, storage.ErrInvalid) {
			failCheck("cursors are exact", "WatchFrom a cursor inside a snapshot, %q: got error %v, want ErrInvalid", w.Cursor(), quoteError(err))
		}
	case !w.inSnapshot:
		if subject(ev) != nil && w.Cursor() == before {
			failCheck("cursors are exact", "the cursor after %s equals the previous event's cursor, %q", eventText(ev), before)
		}
		m.addCursor(w.cursor())
	}
}

// requestBookmarks requests bookmarks of a watch, and usually reads up to the last one.
func (m *modelRun) requestBookmarks() {
	if len(m.watches) == 0 || m.h.NoBookmarker != "" {
		return
	}
	i := m.draw.IntN(len(m.watches))
	for range pick(m.draw, 1, 1, 1, 1, 2, 3) {
		m.requestBookmark(i)
	}
	if m.draw.chance(75) {
		m.readAll(i)
	}
}

func (m *modelRun) requestBookmark(i int) {
	m.note("watch %d: request a bookmark", i)
	w := m.watches[i]
	m.succeeds("bookmarks come", "Bookmark", requestBookmark(m.suite, w.Watch))
	w.requests = append(w.requests, len(m.store.changes))
}

// readAll reads a watch while it has outstanding events.
func (m *modelRun) readAll(i int) {
	for m.watches[i].eventDue() {
		m.readEvent(i, m.watches[i])
	}
}
