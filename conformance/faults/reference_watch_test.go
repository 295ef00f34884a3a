package faults

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// watch is a position in the log.
type watch struct {
	h        *handle
	filter   filter
	mu       sync.Mutex
	snapshot []*resourcepb.Resource
	begun    bool // the snapshot is over
	position int
	held     *resourcepb.WatchEvent // shown once more, or later
	cuts     int
	marks    []int // where bookmarks are due
	closed   chan struct{}
	once     sync.Once
}

func (s *server) cursor(position int) string { return fmt.Sprintf("%s:%d", s.name, position) }

func (h *handle) newWatch(namespace string) *watch {
	w := &watch{h: h, filter: filter{namespace}, closed: make(chan struct{})}
	_, w.cuts = h.wire.state()
	h.open.Lock()
	h.open.watches = append(h.open.watches, w)
	h.open.Unlock()
	if h.has("a goroutine is left") {
		go func() { <-h.leak }()
	}
	return w
}

func (h *handle) WatchList(ctx context.Context, _ storage.UnversionedType, tenancy *resourcepb.Tenancy, _ string) (storage.Watch, error) {
	w := h.newWatch(tenancy.Namespace)
	return w, h.exchange(ctx, func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		w.snapshot, w.position = h.list(w.filter), len(h.log)
		if h.gone > 0 && tenancy.Namespace == storage.Wildcard && h.has("a list after compaction is stale") {
			for i, res := range w.snapshot {
				if old := h.at(keyOf(res.Id), len(h.log)-20); old != nil {
					w.snapshot[i] = proto.CloneOf(old)
				}
			}
		}
	})
}

func (h *handle) WatchFrom(ctx context.Context, _ storage.UnversionedType, tenancy *resourcepb.Tenancy, _ string, cursor string) (storage.Watch, error) {
	name, at, _ := strings.Cut(cursor, ":")
	position, err := strconv.Atoi(at)
	if name != h.name || err != nil {
		return nil, storage.ErrCompacted
	}
	h.mu.Lock()
	gone := position < h.gone
	if gone && h.has("a compacted cursor continues") {
		position, gone = h.gone, false
	}
	h.mu.Unlock()
	if gone || h.sometimes("history is deleted too early", 5) {
		return nil, storage.ErrCompacted
	}
	w := h.newWatch(tenancy.Namespace)
	w.begun, w.position = true, position
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.has("a resumed watch one too late"):
		w.position++
	case h.has("a resumed watch one too early") && position > 0:
		w.position--
	case h.has("a cursor skips the rest of a transaction") && position > 0 && position <= len(h.log):
		w.position = h.log[position-1].last
	}
	return w, nil
}

func (w *watch) Cursor() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.h.cursor(w.position)
}

func (w *watch) Close() { w.once.Do(func() { close(w.closed) }) }

// Bookmark records the end of the log as soon as the server answers.
func (w *watch) Bookmark(ctx context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.h.sometimes("a bookmark is forgotten", 20) {
		return nil
	}
	if w.h.has("a bookmark too early") {
		w.marks = append(w.marks, w.position)
		return nil
	}
	w.marks = append(w.marks, -1)
	return nil
}

func upserted(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: res}}}
}

func (w *watch) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	for {
		select {
		case <-w.closed:
			return nil, storage.ErrWatchClosed
		default:
		}
		open, cuts := w.h.wire.state()
		var silence <-chan time.Time
		if w.h.has("silence counts as proof") {
			silence = time.After(20 * time.Millisecond)
		}
		select {
		case <-open:
		case <-w.closed:
			continue
		case <-silence:
			if w.unmark() {
				return bookmarked(w.Cursor()), nil
			}
			continue
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if w.isAhead() && w.h.has("a crash loses acknowledged writes, and watches report it") {
			return nil, fmt.Errorf("%w: history has been lost", storage.ErrWatchClosed)
		}
		if w.isGone(cuts) {
			return nil, fmt.Errorf("%w: %w", storage.ErrWatchClosed, storage.ErrCompacted)
		}
		ev, wake := w.take(cuts)
		if ev != nil {
			return ev, nil
		}
		select {
		case <-wake:
		case <-w.closed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func bookmarked(cursor string) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Bookmark_{Bookmark: &resourcepb.WatchEvent_Bookmark{Cursor: cursor}}}
}

// isAhead reports whether the watch has shown changes that the log no longer has.
func (w *watch) isAhead() bool {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.position > len(w.h.log)
}

// isGone reports whether the changes after the position of an interrupted watch are compacted.
func (w *watch) isGone(cuts int) bool {
	w.h.mu.Lock()
	defer w.h.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.begun && cuts != w.cuts && w.position < w.h.gone && len(w.snapshot) == 0
}

// unmark takes a bookmark that is due without proof.
func (w *watch) unmark() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.marks) == 0 {
		return false
	}
	w.marks = w.marks[1:]
	return true
}

// take returns the next event, or a channel that is closed when there may be one.
func (w *watch) take(cuts int) (*resourcepb.WatchEvent, <-chan struct{}) {
	h := w.h
	h.mu.Lock()
	defer h.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.snapshot) > 0 {
		res := w.snapshot[0]
		w.snapshot = w.snapshot[1:]
		return upserted(res), nil
	}
	if !w.begun {
		w.begun = true
		return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_EndOfSnapshot_{EndOfSnapshot: &resourcepb.WatchEvent_EndOfSnapshot{}}}, nil
	}
	if w.held != nil {
		ev := w.held
		w.held = nil
		return ev, nil
	}
	if cuts != w.cuts && h.has("a batch is skipped after a reconnect") {
		w.position = max(w.position, min(w.position+3, len(h.log)))
	}
	w.cuts = cuts
	for i, at := range w.marks {
		if at < 0 {
			w.marks[i] = len(h.log) // the round trip
		}
	}
	w.position = min(w.position, len(h.log))
	for w.position < len(h.log) {
		if len(w.marks) > 0 && w.marks[0] <= w.position && (w.position == 0 || h.log[w.position-1].last == w.position) {
			break
		}
		c := h.log[w.position]
		w.position++
		if !w.filter.matches(c.res) {
			continue
		}
		ev := w.show(c)
		switch {
		case c.res.Metadata[metaLast] == "" && h.sometimes("an event is missing", 50): // not the channel that all waits share
			continue
		case h.sometimes("an event is returned twice", 50):
			w.held = proto.CloneOf(ev)
		case w.position < len(h.log) && h.sometimes("events are swapped", 50) && w.filter.matches(h.log[w.position].res):
			w.held, ev = ev, w.show(h.log[w.position])
			w.position++
		}
		return ev, nil
	}
	if len(w.marks) > 0 && w.marks[0] <= w.position {
		w.marks = w.marks[1:]
		return bookmarked(h.cursor(w.position)), nil
	}
	return nil, h.wake
}

func (w *watch) show(c entry) *resourcepb.WatchEvent {
	ev := upserted(proto.CloneOf(c.res))
	if c.deleted {
		ev = &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{Resource: proto.CloneOf(c.res)}}}
	}
	ev.More = w.position < c.last // all of a transaction here is of one round
	return ev
}
