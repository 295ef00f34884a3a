package conformance

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var cursorCases = topic{"Cursors", []testCase{
	{name: "EachEventItsOwn", needs: needResumer, run: cursorEach},
	{name: "EachEventOfATransaction", needs: needResumer | needTransactor, run: cursorTransaction},
	{name: "EndOfSnapshot", needs: needResumer, run: cursorEndOfSnapshot},
	{name: "InsideSnapshot", needs: needResumer, run: cursorInsideSnapshot},
	{name: "AnyFilter", needs: needResumer, run: cursorAnyFilter},
	{name: "AnotherHandle", needs: needResumer | needAnother, run: cursorAnotherHandle},
	{name: "AfterRestart", needs: needResumer | needAnother, run: cursorRestart},
	{name: "Garbage", needs: needResumer, run: cursorGarbage},
	{name: "AnotherStore", needs: needResumer, run: cursorAnotherStore},
	{name: "MovesWhileQuiet", needs: needResumer, run: cursorQuiet},
	{name: "NoHalfCapability", run: cursorNoHalf},
}}

// changes makes a few changes of every kind to three keys and returns their events.
func makeChanges(s *suite) []*resourcepb.WatchEvent {
	s.Helper()
	a, b := s.create("a"), s.create("b")
	want := []*resourcepb.WatchEvent{upsertEvent(a), upsertEvent(b)}
	a = s.update(a)
	want = append(want, upsertEvent(a))
	s.delete(b)
	want = append(want, deleteEvent(b))
	b = s.create("b")
	c := s.create("c")
	a = s.update(a)
	want = append(want, upsertEvent(b), upsertEvent(c), upsertEvent(a))
	s.delete(a)
	s.delete(c)
	return append(want, deleteEvent(a), deleteEvent(c), upsertEvent(s.update(b)))
}

// cursorsOf reads as many events as want has, and returns them with the cursor after each.
func cursorsOf(s *suite, w storage.Watch, want []*resourcepb.WatchEvent) (events []*resourcepb.WatchEvent, cursors []string) {
	s.Helper()
	for range want {
		events = append(events, s.next(w))
		cursors = append(cursors, w.Cursor())
	}
	return events, cursors
}

// resumeFromEach resumes from every cursor and demands exactly the events after it.
func resumeFromEach(s *suite, start string, events []*resourcepb.WatchEvent, cursors []string) {
	s.Helper()
	fence := upsertEvent(s.create("fence"))
	for i, cursor := range append([]string{start}, cursors...) {
		w := s.resume(cursor, allFilter)
		if got := w.Cursor(); got != cursor {
			s.Fatalf("a watch from cursor %q says that it is at %q before its first event", cursor, got)
		}
		anyInterleaving(s, w, fmt.Sprintf("from the cursor after event %d", i), append(slices.Clone(events[i:]), fence))
		w.Close()
	}
}

// anyInterleaving demands exactly want, in order for each key. Events of one transaction have no order, so two watches may show
// them in different orders.
func anyInterleaving(s *suite, w storage.Watch, what string, want []*resourcepb.WatchEvent) {
	s.Helper()
	left := make(map[string][]*resourcepb.WatchEvent)
	for _, ev := range want {
		key := keyOf(subject(ev).GetId())
		left[key] = append(left[key], ev)
	}
	for range want {
		got, err := s.nextOrError(w)
		s.noError("a watch "+what, err)
		key := keyOf(subject(got).GetId())
		if len(left[key]) == 0 {
			s.Fatalf("a watch %s brings the unexpected %s", what, shortText(got))
		}
		s.equal("a watch "+what, got, left[key][0])
		left[key] = left[key][1:]
	}
}

func cursorEach(s *suite) {
	w := s.watchAll()
	start := w.Cursor()
	want := makeChanges(s)
	events, cursors := cursorsOf(s, w, want)
	seen := make(map[string]int)
	for i, cursor := range cursors {
		if earlier, again := seen[cursor]; again || cursor == "" {
			s.Fatalf("event %d has the cursor of event %d: %q", i, earlier, cursor)
		}
		seen[cursor] = i
	}
	resumeFromEach(s, start, events, cursors)
}

func cursorTransaction(s *suite) {
	w := s.watchAll()
	start := w.Cursor()
	gone := s.create("gone")
	var ops []storage.Op
	for i := range 6 {
		ops = append(ops, storage.Op{Write: newThing("member-" + strconv.Itoa(i))})
	}
	ops = append(ops, storage.Op{Delete: gone.Id, Version: gone.Version})
	results := s.commit(ops...)
	want := []*resourcepb.WatchEvent{upsertEvent(gone), deleteEvent(gone)}
	for _, res := range results[:6] {
		want = append(want, upsertEvent(res))
	}
	events, cursors := cursorsOf(s, w, want)
	resumeFromEach(s, start, events, cursors)
}

func cursorEndOfSnapshot(s *suite) {
	for _, name := range []string{"a", "b", "c"} {
		s.create(name)
	}
	w := s.watch(anything, anywhere, "")
	s.snapshot(w)
	cursor := w.Cursor()
	next := upsertEvent(s.create("d"))
	for range 2 {
		resumed := s.resume(cursor, allFilter)
		s.expectEvent(resumed, next)
		resumed.Close()
	}
	s.expectEvent(w, next)
}

func cursorInsideSnapshot(s *suite) {
	for _, name := range []string{"a", "b", "c"} {
		s.create(name)
	}
	w := s.watch(anything, anywhere, "")
	for range 2 {
		s.next(w)
		_, err := s.resumer().WatchFrom(s.ctx, anything, anywhere, "", w.Cursor())
		s.wantError(fmt.Sprintf("WatchFrom a cursor inside a snapshot, %q", w.Cursor()), err, storage.ErrInvalid)
	}
	s.snapshot(w)
	s.resume(w.Cursor(), allFilter)
}

func cursorAnyFilter(s *suite) {
	narrow := s.watch(things, home, "b")
	s.snapshot(narrow)
	want := makeChanges(s)
	first := s.next(narrow)
	wide := s.resume(narrow.Cursor(), allFilter)
	if s.h.NoOrderAcrossKeys == "" {
		// A position in the narrow watch is one in the whole store: after the first change of b, which is the second of all,
		// and before the next one of b. Whether the change of a in between is before or after it is undefined.
		var rest []*resourcepb.WatchEvent
		if ev := s.next(wide); proto.Equal(ev, want[2]) {
			rest = want[3:]
		} else {
			s.equal("the first event after the narrow watch's cursor", ev, want[3])
			rest = want[4:]
		}
		expectPerKey(s, wide, rest...)
		s.expectEvent(narrow, want[3])
	}
	s.equal("the first event", first, want[1])

	all := s.watch(anything, anywhere, "")
	s.snapshot(all)
	cursor := all.Cursor()
	s.create("x")
	b := s.create("b2")
	s.expectUpsert(s.resume(cursor, filter{things, home, "b"}), b)
	s.expectUpsert(s.resume(cursor, filter{things, anywhere, "b2"}), b)
}

func cursorAnotherHandle(s *suite) {
	w := s.watchAll()
	start := w.Cursor()
	events, cursors := cursorsOf(s, w, makeChanges(s))
	s.b = s.another()
	resumeFromEach(s, start, events, cursors)
}

func cursorRestart(s *suite) {
	w := s.watchAll()
	start := w.Cursor()
	events, cursors := cursorsOf(s, w, makeChanges(s))
	s.closeBackend(s.b)
	s.b = s.another()
	resumeFromEach(s, start, events, cursors)
}

func cursorGarbage(s *suite) {
	w := s.watchAll()
	stored := s.create("a")
	s.expectUpsert(w, stored)
	c := w.Cursor()
	texts := []string{"", " ", "garbage", "0", "1", "-1", "%", "\x00", "💥", "AAAA", c + "x", "x" + c, c[:len(c)/2], c[1:], c + " ", strings.Repeat("A", 5000), stored.Version + "!"}
	if pager, ok := storage.As[storage.Pager](s.b); ok {
		s.create("b")
		page := s.page(pager, allFilter, storage.ListOptions{Consistency: strong, Limit: 1})
		if page.Continue != "" {
			texts = append(texts, page.Continue)
		}
	}
	for _, text := range texts {
		_, err := s.resumer().WatchFrom(s.ctx, anything, anywhere, "", text)
		s.wantError("WatchFrom cursor "+strconv.Quote(text), err, storage.ErrInvalid)
	}
}

func cursorAnotherStore(s *suite) {
	w := s.watchAll()
	s.expectUpsert(w, s.create("a"))
	cursor := w.Cursor()
	s.open()
	s.create("a")
	other, err := s.resumer().WatchFrom(s.ctx, anything, anywhere, "", cursor)
	if err == nil {
		s.mustOpen(other, nil)
		_, err = s.nextOrError(other)
		if !errors.Is(err, storage.ErrWatchClosed) {
			s.Fatalf("Next of a watch from another store's cursor: got error %v, want ErrWatchClosed", quoteError(err))
		}
	}
	s.wantError("a watch from another store's cursor", err, storage.ErrCompacted)
}

func cursorQuiet(s *suite) {
	all := s.watchAll()
	start := all.Cursor()
	quiet := s.resume(start, filter{things, home, "quiet"})
	arrived := make(chan error, 1)
	var got *resourcepb.WatchEvent
	go func() {
		var err error
		got, err = s.nextOrError(quiet)
		arrived <- err
	}()
	noisy := s.create("noisy")
	s.eventually("the cursor of a watch that nothing matches moves on", func() error {
		noisy = s.update(noisy)
		if quiet.Cursor() == start {
			return errors.New("it did not")
		}
		return nil
	})
	moved := quiet.Cursor()
	want := upsertEvent(s.create("quiet"))
	s.noError("Next of a quiet watch", s.result("Next of a quiet watch", arrived))
	s.equal("Next of a quiet watch", got, want)
	s.expectEvent(s.resume(moved, filter{things, home, "quiet"}), want)
}

// cursorNoHalf holds a backend that cannot resume to an empty cursor.
func cursorNoHalf(s *suite) {
	if _, ok := storage.As[storage.Resumer](s.b); ok {
		return
	}
	w := s.watchAll()
	s.expectUpsert(w, s.create("a"))
	if cursor := w.Cursor(); cursor != "" {
		s.Fatalf("a watch of a backend that is no storage.Resumer has cursor %q", cursor)
	}
	if pager, ok := storage.As[storage.Pager](s.b); ok {
		if page := s.page(pager, allFilter, storage.ListOptions{}); page.Cursor != "" {
			s.Fatalf("a page of a backend that is no storage.Resumer has cursor %q", page.Cursor)
		}
	}
}
