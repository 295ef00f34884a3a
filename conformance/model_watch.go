package conformance

import (
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A changeStatus is the place of a change relative to a position in a watch.
type changeStatus byte

const (
	statusAfter  changeStatus = iota // the change is after the position: its event is still to come
	statusBefore                     // the change is before the position: its event must not come
	statusOpen                       // the contract allows both
)

// A modelCursor is a cursor and its meaning. Changes beyond the end of statuses come after it.
type modelCursor struct {
	text     string
	statuses []changeStatus
}

// A modelWatch is a watch and the events that it must still return.
type modelWatch struct {
	storage.Watch
	handle     *modelHandle
	h          *Harness
	filter     filter
	inSnapshot bool
	snapshot   []*resourcepb.Resource // still to come
	statuses   []changeStatus         // of the watch's position, by change
	more       bool                   // the commit of the last event continues
	recalls    bool
	requests   []int // for each unanswered request of a bookmark, the number of changes at its time
	answers    int64 // the number of answered requests
}

// position extends the statuses to all changes and returns them.
func (w *modelWatch) position() []changeStatus {
	for i := len(w.statuses); i < len(w.handle.store.changes); i++ {
		status := statusOpen
		if w.selects(i) {
			status = statusAfter
		}
		w.statuses = append(w.statuses, status)
	}
	return w.statuses
}

func (w *modelWatch) selects(change int) bool {
	return w.filter.selects(subject(w.handle.store.changes[change].event).Id)
}

// eventDue reports whether Next must return an event.
func (w *modelWatch) eventDue() bool {
	return w.inSnapshot || len(w.requests) > 0 || w.changeDue(len(w.handle.store.changes))
}

// changeDue reports whether Next must still return one of the first changes of the store.
func (w *modelWatch) changeDue(changes int) bool {
	for i, status := range w.position()[:changes] {
		if status == statusAfter && w.selects(i) && !w.canSkip(i) {
			return true
		}
	}
	return false
}

// canSkip reports whether a watch that merges events may leave out a change because of a later one.
func (w *modelWatch) canSkip(change int) bool {
	later := w.handle.store.changes[change+1:]
	return w.h.MergesEvents != "" && slices.ContainsFunc(later, func(c modelChange) bool { return c.key == w.handle.store.changes[change].key })
}

// cursor returns the present position of the watch.
func (w *modelWatch) cursor() modelCursor {
	statuses := slices.Clone(w.position())
	next := -1 // the commit of the next event
	for i, status := range statuses {
		c := w.handle.store.changes[i]
		switch {
		case status == statusAfter && next < 0 && w.handle.keepsOrder:
			next = c.commit
		case status == statusOpen && next >= 0 && c.commit > next:
			statuses[i] = statusAfter
		}
	}
	return modelCursor{w.Cursor(), statuses}
}

// accept compares an event with the expected ones.
func (w *modelWatch) accept(ev *resourcepb.WatchEvent) {
	switch {
	case ev.GetBookmark() != nil:
		w.acceptBookmark(ev)
	case w.inSnapshot:
		w.acceptSnapshot(ev)
	default:
		w.acceptChange(ev)
	}
}

func (w *modelWatch) acceptSnapshot(ev *resourcepb.WatchEvent) {
	const check = "snapshots of watches"
	switch {
	case ev.GetMore():
		failCheck("transactions in watches", "an event of a snapshot says that its commit continues: %s", shortText(ev))
	case len(w.snapshot) > 0 && !proto.Equal(ev, upsertEvent(w.snapshot[0])):
		failCheck(check, "the snapshot of %v:\n got %s\nwant %s", w.filter, shortText(ev), shortText(w.snapshot[0]))
	case len(w.snapshot) > 0:
		w.snapshot = w.snapshot[1:]
	case ev.GetEndOfSnapshot() == nil:
		failCheck(check, "the snapshot of %v continues after its last resource with %s", w.filter, shortText(ev))
	default:
		w.inSnapshot = false
	}
}

func (w *modelWatch) acceptBookmark(ev *resourcepb.WatchEvent) {
	answers := ev.GetBookmark().GetRequest() - w.answers // the number of requests that it answers
	switch {
	case w.inSnapshot:
		failCheck("bookmarks are true", "a bookmark in the middle of a snapshot")
	case w.more:
		failCheck("transactions in watches", "a bookmark in the middle of a commit")
	case len(w.requests) == 0:
		failCheck("bookmarks", "there are more bookmarks than requests")
	case answers < 1 || answers > int64(len(w.requests)):
		failCheck("bookmarks", "a bookmark answers request %d, expected %d to %d", ev.GetBookmark().GetRequest(), w.answers+1, w.answers+int64(len(w.requests)))
	case ev.GetMore(), ev.GetBookmark().GetCursor() != w.Cursor():
		failCheck("bookmarks are true", "a bookmark has cursor %q, the watch is at %q", ev.GetBookmark().GetCursor(), w.Cursor())
	}
	newest := w.requests[answers-1]
	if w.changeDue(newest) {
		failCheck("bookmarks are true", "a bookmark of a watch of %v came before an event of a change that was acknowledged before the request", w.filter)
	}
	for i := range w.position()[:newest] {
		w.statuses[i] = statusBefore
	}
	w.requests, w.answers = w.requests[answers:], w.answers+answers
}

func (w *modelWatch) acceptChange(ev *resourcepb.WatchEvent) {
	changes := w.handle.store.changes
	i := w.find(ev)
	c := changes[i]
	position := w.position()
	for j, status := range position {
		other := changes[j]
		sameOrder := other.key == c.key
		if w.handle.keepsOrder {
			sameOrder = other.commit != c.commit
		}
		switch {
		case j == i || sameOrder && j < i:
			if j < i && status == statusAfter && w.selects(j) && !w.canSkip(j) {
				check := "watches are complete and ordered"
				if other.key != c.key {
					check = "one order of changes"
				}
				failCheck(check, "a watch of %v returned %s\nbefore %s", w.filter, shortText(ev), shortText(other.event))
			}
			position[j] = statusBefore
		case sameOrder && status == statusOpen && w.selects(j):
			position[j] = statusAfter
		}
	}
	w.checkMore(ev, c)
	if want := resourceOf(c.before); w.recalls && !proto.Equal(ev.Before, want) || !w.recalls && ev.Before != nil {
		failCheck("watches report the previous state", "the previous state in %s:\n got %s\nwant %s", shortText(ev), shortText(ev.Before), shortText(want))
	}
	w.handle.raiseFloors(i)
}

// find returns the change of an event.
func (w *modelWatch) find(ev *resourcepb.WatchEvent) int {
	plain := clone(ev)
	plain.More, plain.Before = false, nil
	for i, status := range w.position() {
		c := w.handle.store.changes[i]
		if !proto.Equal(plain, c.event) {
			continue
		}
		if status == statusBefore || !w.selects(i) {
			failCheck("watches are complete and ordered", "a watch of %v returned an event that its position had already passed, or that its filter does not select: %s", w.filter, shortText(ev))
		}
		return i
	}
	if ev.GetDelete() != nil {
		failCheck("deletions show the last resource", "a watch of %v returned %s", w.filter, shortText(ev))
	}
	failCheck("watches are complete and ordered", "a watch of %v returned an event that belongs to no change: %s", w.filter, shortText(ev))
	return -1
}

// checkMore compares WatchEvent.more with the rest of the commit.
func (w *modelWatch) checkMore(ev *resourcepb.WatchEvent, c modelChange) {
	w.more = ev.GetMore()
	if w.h.NoCommitBounds != "" {
		if ev.GetMore() {
			failCheck("transactions in watches", "an event says that its commit continues although Harness.NoCommitBounds says: %s", w.h.NoCommitBounds)
		}
		return
	}
	remaining, open := false, false
	for j, status := range w.position() {
		if w.handle.store.changes[j].commit == c.commit && w.selects(j) {
			remaining, open = remaining || status == statusAfter, open || status == statusOpen
			if status == statusOpen && !ev.GetMore() {
				w.statuses[j] = statusBefore
			}
		}
	}
	if ev.GetMore() != remaining && !open {
		failCheck("transactions in watches", "more is %v, the rest of the commit for %v is %v: %s", ev.GetMore(), w.filter, remaining, shortText(ev))
	}
}
