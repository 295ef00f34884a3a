package conformance

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A cursor carries a sum, so that a damaged one is not taken for another store's.
func (h *handle) cursor(position int) string { return sealed(h.name + ":" + strconv.Itoa(position)) }

func sealed(text string) string {
	return fmt.Sprintf("%s:%08x", text, crc32.ChecksumIEEE([]byte(text)))
}

func (h *handle) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	if err := h.enter(ctx, errorOf(check.Filter(typ, tenancy, prefix))); err != nil {
		return nil, err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	f := filter{typ, tenancy, prefix}
	w := h.newWatch(f, len(h.log))
	if h.has("snapshot after the position") {
		h.pause()
	}
	if h.has("a watch ends with its context") {
		w.bound = ctx
	}
	if h.has("a goroutine is left") {
		go func() { <-h.leak }()
	}
	w.fillSnapshot()
	if h.has("snapshot before the position") {
		h.pause()
		w.position = len(h.log)
	}
	w.lazy = h.has("the snapshot waits for Next")
	return w, nil
}

// fillSnapshot reads the snapshot.
func (w *watch) fillSnapshot() {
	w.snapshot = nil
	for _, res := range w.h.matching(w.filter) {
		if w.h.compacted > 0 && w.h.has("a list after compaction is stale") {
			res = clone(cmp.Or(w.h.at(keyOf(res.Id), len(w.h.log)-20), res))
		}
		w.snapshot = append(w.snapshot, upsertEvent(res))
	}
	if len(w.snapshot) > 0 || !w.h.has("no end of an empty snapshot") {
		w.snapshot = append(w.snapshot, &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}})
	}
}

func (h *handle) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix, cursor string) (storage.Watch, error) {
	problem := errorOf(check.Filter(typ, tenancy, prefix))
	parts := strings.Split(cursor, ":")
	if len(parts) != 3 || sealed(parts[0]+":"+parts[1]) != cursor {
		problem = errors.Join(problem, invalid("cursor %q", cursor))
	}
	if err := h.enter(ctx, problem); err != nil {
		return nil, err
	}
	position, err := strconv.Atoi(parts[1])
	if err != nil && h.has("a cursor inside a snapshot") {
		return h.newWatch(filter{typ, tenancy, prefix}, 0), nil
	}
	if err != nil {
		return nil, invalid("cursor %q from inside a snapshot", cursor)
	}
	if parts[0] != h.name && !h.has("another store's cursor") {
		return nil, storage.ErrCompacted
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch isGone := h.revisionAt(position) < h.floor(); {
	case isGone && h.has("a compacted cursor continues"):
		position = h.positionAfter(h.floor())
	case isGone, h.sometimes("history is deleted too early", 5):
		return nil, storage.ErrCompacted
	case position < len(h.log) && (h.has("a resumed watch one too late") || h.compacted > 0 && h.has("a resumed watch loses an event after a compaction")):
		position++
	case position > 0 && h.has("a resumed watch one too early"):
		position--
	}
	w := h.newWatch(filter{typ, tenancy, prefix}, position)
	w.resumed = true
	if h.has("watches from cursors have no bookmarks") {
		return struct{ storage.Watch }{w}, nil
	}
	return w, nil
}

func (h *handle) newWatch(f filter, position int) *watch {
	f.tenancy = clone(f.tenancy)
	if h.has("watches ignore the prefix") {
		f.prefix = ""
	}
	w := &watch{h: h, filter: f, position: position, closed: make(chan struct{})}
	_, w.cuts = h.conn.state()
	return w
}

type watch struct {
	h        *handle
	filter   filter
	snapshot []*resourcepb.WatchEvent
	position int   // in the log
	marks    []int // the positions of bookmark requests that are not answered
	requests int64 // the number of bookmark requests
	answered int64 // the number of the newest answered one
	open     bool  // the commit of the last event continues
	resumed  bool  // from a cursor, and has returned nothing yet
	moved    bool  // has returned a change since the last bookmark request
	closed   chan struct{}
	once     sync.Once
	err      error
	recalls  bool
	cuts     int                    // of the connection so far
	lazy     bool                   // a bug: the snapshot is read at the first Next
	held     *resourcepb.WatchEvent // a bug returns it next
	later    int                    // bytes of the snapshot that were returned
	bound    context.Context        // the error that a bug ends the watch with
}

func (w *watch) Close() { w.end(storage.ErrWatchClosed) }

// end notes why the watch ended. Only the first reason counts.
func (w *watch) end(err error) error {
	w.once.Do(func() {
		select {
		case <-w.h.closed:
			err = fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrClosed)
		default:
		}
		w.err = err
		close(w.closed)
	})
	<-w.closed
	return w.err
}

func (w *watch) Cursor() string {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	if len(w.snapshot) > 0 {
		return sealed(w.h.name + ":snapshot")
	}
	switch {
	case w.h.has("a cursor one too early") && w.position > 0:
		return w.h.cursor(w.position - 1)
	case w.h.has("one cursor for a transaction") && w.position > 0:
		return w.h.cursor(w.h.log[w.position-1].last)
	}
	return w.h.cursor(w.position)
}

func (w *watch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	for {
		var ev *resourcepb.WatchEvent
		var wake <-chan struct{}
		if w.h.has("a closed watch goes on") || w.h.has("a cancelled Next consumes") && ctx.Err() != nil {
			ev, wake = w.take()
		}
		select {
		case <-w.closed:
			if ev != nil && w.h.has("a closed watch goes on") {
				return ev, nil
			}
			return nil, w.err
		case <-w.h.closed:
			if w.h.has("watches outlive their backend") {
				break
			}
			return nil, w.end(nil)
		default:
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if w.bound != nil && w.bound.Err() != nil {
			return nil, w.end(storage.ErrWatchClosed)
		}
		open, cuts := w.h.conn.state()
		if !isOpen(open) {
			if ev := w.await(ctx, open); ev != nil {
				return ev, nil
			}
			continue
		}
		if err := w.lost(cuts); err != nil {
			return nil, w.end(err)
		}
		// A call takes 20 ms, and one that ends sooner leaves nothing to the next one. No timer runs: on a busy machine it would now and
		// then be seen before the end of a context that ended first.
		if end, ends := ctx.Deadline(); w.h.has("Next begins anew") && ends && time.Until(end) < 20*time.Millisecond {
			<-ctx.Done()
			continue
		}
		if ev == nil {
			ev, wake = w.take()
		}
		if ev != nil {
			return ev, nil
		}
		began := time.Now()
		select {
		case <-wake:
			if w.h.has("an event after silence is lost") && time.Since(began) > 3*time.Second {
				_, _ = w.take()
			}
		case <-w.closed:
		case <-w.h.ended():
		case <-ctx.Done():
		}
	}
}

// await waits until a stalled connection is open.
func (w *watch) await(ctx context.Context, open <-chan struct{}) *resourcepb.WatchEvent {
	var silence <-chan time.Time
	if w.h.has("silence counts as proof") {
		silence = time.After(20 * time.Millisecond)
	}
	select {
	case <-open:
	case <-w.closed:
	case <-w.h.ended():
	case <-ctx.Done():
	case <-silence:
		w.h.mu.Lock()
		defer w.h.mu.Unlock()
		for i := range w.marks {
			w.marks[i] = 0
		}
		return w.bookmark()
	}
	return nil
}

// lost returns the error of a watch that cannot go on after its connection was interrupted.
func (w *watch) lost(cuts int) error {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	switch {
	case w.position > len(w.h.log) && w.h.has("a crash loses acknowledged writes, and watches report it"):
		return fmt.Errorf("%w: history is lost", storage.ErrWatchClosed)
	case cuts != w.cuts && len(w.snapshot) == 0 && w.h.revisionAt(w.position) < w.h.floor():
		return fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrCompacted)
	case w.h.has("slow watches end") && len(w.h.log)-w.position > 64:
		return storage.ErrWatchClosed
	case cuts != w.cuts && len(w.snapshot) == 0 && w.h.has("a batch is skipped after a reconnect"):
		w.position = min(w.position+3, len(w.h.log))
	}
	w.cuts, w.position = cuts, min(w.position, len(w.h.log))
	return nil
}

// take returns the next event, or a channel that is closed when there may be one.
func (w *watch) take() (*resourcepb.WatchEvent, <-chan struct{}) {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	if w.lazy {
		w.lazy, w.position = false, len(w.h.log)
		w.fillSnapshot()
	}
	if ev := w.held; ev != nil {
		w.held = nil
		return ev, nil
	}
	if ev := w.bookmark(); ev != nil {
		return ev, nil
	}
	if len(w.snapshot) > 0 {
		ev := w.snapshot[0]
		w.snapshot = w.snapshot[1:]
		if w.h.has("the second page of a snapshot shows the present") {
			w.later += len(ev.GetUpsert().GetResource().GetData().GetValue())
			if stored := w.h.rows[keyOf(subject(ev).GetId())]; stored != nil && w.later > 4<<20 {
				ev = upsertEvent(clone(stored))
			}
		}
		return ev, nil
	}
	for ev := w.pass(); ev != nil; ev = w.pass() {
		if w.h.log[w.position-1].res.Metadata[lastMark] == "" && w.h.sometimes("an event is missing", 50) {
			continue
		}
		if w.h.sometimes("an event is returned twice", 50) {
			w.held = clone(ev)
		} else if w.h.sometimes("events are swapped", 50) {
			if next := w.pass(); next != nil {
				w.held, ev = ev, next
			}
		}
		return ev, nil
	}
	return w.bookmark(), w.h.wake // the last event may have been the awaited one
}

// pass moves the watch past the next change that it selects, and returns its event. It returns nil if there is none.
func (w *watch) pass() *resourcepb.WatchEvent {
	for w.position < len(w.h.log) {
		c := w.h.log[w.position]
		w.position++
		if !w.filter.selects(c.res.Id) {
			continue
		}
		ev := upsertEvent(clone(c.res))
		switch {
		case c.deleted:
			ev = deleteEvent(clone(c.res))
		case w.h.has("events share a resource"):
			ev = upsertEvent(c.res)
		}
		w.open = w.goesOn(c)
		w.resumed, w.moved = false, true
		ev.More = w.open
		w.recall(ev, c)
		return ev
	}
	return nil
}
