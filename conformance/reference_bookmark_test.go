package conformance

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var _ storage.Bookmarker = (*watch)(nil)

// Bookmark notes the end of the log: the bookmark comes when the watch has passed it.
func (w *watch) Bookmark(ctx context.Context) error {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	select {
	case <-w.closed:
		if w.h.has("closed watches take requests") {
			return nil
		}
		return w.err
	case <-w.h.closed:
		return fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrClosed)
	default:
	}
	if err := ctx.Err(); err != nil {
		if w.h.has("failed calls of Bookmark have numbers") {
			w.requests++
		}
		return err
	}
	if w.h.has("a request ends with its context") {
		w.bound = ctx
	}
	w.requests++
	if w.h.sometimes("a bookmark is forgotten", 20) {
		return nil
	}
	asked := w.h.newest()
	switch {
	case w.h.has("a bookmark comes at once"), w.h.has("a bookmark overtakes history") && len(w.h.log)-w.position > 64:
		asked = 0
	case w.h.has("bookmarks come twice"):
		w.marks = append(w.marks, asked)
	}
	w.marks = append(w.marks, asked)
	w.moved = false
	close(w.h.wake)
	w.h.wake = make(chan struct{})
	return nil
}

// newest returns the end of the log.
func (h *handle) newest() int {
	if !h.has("bookmarks share the round trip under way") {
		return len(h.log)
	}
	if h.trip == nil {
		began := len(h.log)
		h.trip = &began
		h.pause()
		h.trip = nil
		return began
	}
	return *h.trip
}

// bookmark returns the bookmark that is due.
func (w *watch) bookmark() *resourcepb.WatchEvent {
	switch {
	case len(w.marks) == 0 || w.open || w.position < w.marks[0]:
		return nil
	case len(w.snapshot) > 0 && !w.h.has("a bookmark in a snapshot"):
		return nil
	case w.h.has("no bookmark without changes") && !w.moved:
		return nil
	}
	for len(w.marks) > 0 && w.position >= w.marks[0] {
		w.marks = w.marks[1:]
		if w.h.has("bookmarks come twice") {
			break
		}
	}
	answered := w.requests - int64(len(w.marks))
	switch {
	case w.h.has("bookmarks come twice"):
		answered = w.requests - int64(len(w.marks)/2)
	case w.h.has("bookmarks have no number"):
		answered = 0
	case w.h.has("a bookmark answers later requests"):
		answered = w.requests
	case w.h.has("a bookmark names the oldest request") && answered > 0:
		answered = w.answered + 1
	}
	w.answered = answered
	cursor := w.h.cursor(w.position)
	if w.h.has("a bookmark has an old cursor") {
		cursor = w.h.cursor(0)
	}
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Bookmark_{Bookmark: &resourcepb.WatchEvent_Bookmark{Cursor: cursor, Request: answered}}}
}

// goesOn reports whether the rest of the commit of c, which the watch has just passed, holds something for it.
func (w *watch) goesOn(c change) bool {
	switch {
	case w.h.has("no more"), w.h.has("no more after a cursor") && w.resumed, w.h.has("no more between pages") && w.position%100 == 0:
		return false
	case w.h.has("more after the last"):
		return len(w.h.log)-w.position > 0 && w.position <= c.last
	case w.h.has("more between commits") && w.position%7 == 0:
		return w.position < len(w.h.log)
	case w.h.has("more whatever the filter"):
		return w.position < c.last
	}
	for _, other := range w.h.log[w.position:max(w.position, c.last)] {
		if w.filter.selects(other.res.Id) {
			return true
		}
	}
	return false
}
