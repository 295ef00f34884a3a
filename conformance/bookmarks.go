package conformance

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var bookmarkCases = topic{"Bookmarks", []testCase{
	{name: "History", needs: needBookmarker | needResumer, run: bookmarkHistory},
	{name: "SlowWatch", needs: needBookmarker, run: bookmarkSlow},
	{name: "Requests", needs: needBookmarker, run: bookmarkRequests},
	{name: "Closed", needs: needBookmarker, run: bookmarkClosed},
	{name: "NoHalfCapability", run: bookmarkNoHalf},
}}

// mustRequestBookmark requests a bookmark.
func mustRequestBookmark(s *suite, w storage.Watch) {
	s.Helper()
	s.noError("Bookmark", requestBookmark(s, w))
}

func requestBookmark(s *suite, w storage.Watch) error {
	b, ok := w.(storage.Bookmarker)
	if !ok {
		return fmt.Errorf("the watch, a %T, is no storage.Bookmarker", w)
	}
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel() // the context bounds the call only
	return b.Bookmark(ctx)
}

// untilBookmark reads up to the next bookmark and returns the changes before it.
func untilBookmark(s *suite, w storage.Watch) []*resourcepb.WatchEvent {
	s.Helper()
	events, err := readToBookmark(s, w)
	s.noError("Next", err)
	return events
}

// readToBookmark is untilBookmark for goroutines, which may not end the case.
func readToBookmark(s *suite, w storage.Watch) (events []*resourcepb.WatchEvent, err error) {
	for more := false; ; {
		ev, err := s.nextOrBookmark(w)
		switch {
		case err != nil:
			return events, fmt.Errorf("waiting for a bookmark, after %d events: %w", len(events), err)
		case ev.GetBookmark() == nil:
			more, ev.More = ev.More, false
			events = append(events, ev)
			continue
		case more || ev.GetMore():
			return events, errors.New("a bookmark in the middle of a commit")
		case ev.GetBookmark().GetCursor() != w.Cursor():
			return events, fmt.Errorf("a bookmark has cursor %q, the watch is at %q", ev.GetBookmark().GetCursor(), w.Cursor())
		}
		return events, nil
	}
}

// quietUntilBookmark demands that the next event is a bookmark.
func quietUntilBookmark(s *suite, w storage.Watch) {
	s.Helper()
	if events := untilBookmark(s, w); len(events) > 0 {
		s.Fatalf("a watch without changes brings %s", shortText(events[0]))
	}
}

// bookmarkHistory resumes a watch far behind and requests a bookmark at once.
func bookmarkHistory(s *suite) {
	w := s.watchAll()
	start := w.Cursor()
	w.Close()
	var want []*resourcepb.WatchEvent
	res := newThing("a")
	for range s.scale(800) {
		res = s.update(res)
		want = append(want, upsertEvent(res))
	}
	w = s.resume(start, allFilter)
	mustRequestBookmark(s, w)
	got := untilBookmark(s, w)
	if len(got) != len(want) {
		s.Fatalf("%d events came before the bookmark, want the %d from before the watch was opened", len(got), len(want))
	}
	for i := range want {
		s.equal("an event before the bookmark", got[i], want[i])
	}
	// A bookmark is requested when there is nothing to catch up on.
	for _, f := range []filter{allFilter, {things, home, "nothing"}} {
		w = s.resume(w.Cursor(), f)
		mustRequestBookmark(s, w)
		quietUntilBookmark(s, w)
	}
}

// bookmarkSlow requests a bookmark from a watch that has fallen far behind.
func bookmarkSlow(s *suite) {
	w := s.watch(things, home, "")
	s.snapshot(w)
	var want []*resourcepb.WatchEvent
	res := newThing("a")
	for range s.scale(300) {
		res = withNewData(res)
		res.Data.Value = randomBytes(1000)
		res = s.write(res)
		want = append(want, upsertEvent(res))
	}
	mustRequestBookmark(s, w)
	got := untilBookmark(s, w)
	if len(got) != len(want) && s.h.MergesEvents == "" || len(got) == 0 {
		s.Fatalf("%d events came before the bookmark, want %d", len(got), len(want))
	}
	s.equal("the event before the bookmark", got[len(got)-1], want[len(want)-1])
}

// bookmarkRequests checks that each bookmark names the newest request that it answers.
func bookmarkRequests(s *suite) {
	over, cancel := context.WithCancel(s.ctx)
	cancel()
	w, other := s.watchAll(), s.watchAll()
	requested, answered := int64(0), int64(0)
	for range 3 {
		s.wantError("Bookmark with a cancelled context", w.(storage.Bookmarker).Bookmark(over), context.Canceled) // it has no number
		for range 3 {
			mustRequestBookmark(s, w)
			requested++
		}
		last := s.create(fmt.Sprint("after-", requested))
		mustRequestBookmark(s, w)
		requested++
		for hasChange := false; answered < requested; {
			ev, err := s.nextOrBookmark(w)
			s.noError("Next", err)
			if ev.GetBookmark() == nil {
				s.equal("the change before the last request", ev, upsertEvent(last))
				hasChange = true
				continue
			}
			number := ev.GetBookmark().GetRequest()
			if number <= answered || number > requested {
				s.Fatalf("a bookmark answers request %d, expected %d to %d", number, answered+1, requested)
			}
			if answered = number; answered == requested && !hasChange {
				s.Fatalf("the bookmark for request %d came before a change that was acknowledged before the request", requested)
			}
		}
	}
	mustRequestBookmark(s, other) // each watch counts for itself
	ev := &resourcepb.WatchEvent{}
	for ev.GetBookmark() == nil {
		var err error
		ev, err = s.nextOrBookmark(other)
		s.noError("Next", err)
	}
	if number := ev.GetBookmark().GetRequest(); number != 1 {
		s.Fatalf("the first bookmark of another watch answers request %d, expected 1", number)
	}
}

func bookmarkClosed(s *suite) {
	over, cancel := context.WithCancel(s.ctx)
	cancel()
	w := s.watchAll()
	s.wantError("Bookmark with a cancelled context", w.(storage.Bookmarker).Bookmark(over), context.Canceled)
	s.expectUpsert(w, s.create("a")) // and no bookmark

	mustRequestBookmark(s, w)
	w.Close()
	_, err := w.Next(s.ctx)
	s.wantError("Next of a watch closed with a request open", err, storage.ErrWatchClosed)
	for _, ctx := range []context.Context{s.ctx, over} {
		s.wantError("Bookmark of a closed watch", w.(storage.Bookmarker).Bookmark(ctx), storage.ErrWatchClosed)
	}

	w = s.watch(things, home, "nothing")
	s.snapshot(w)
	mustRequestBookmark(s, w)
	s.noError("Close", s.b.Close())
	err = w.(storage.Bookmarker).Bookmark(s.ctx)
	s.wantError("Bookmark on a closed backend", err, storage.ErrWatchClosed)
	s.wantError("Bookmark on a closed backend", err, storage.ErrClosed)
	_, err = w.Next(s.ctx)
	s.wantError("Next on a closed backend", err, storage.ErrClosed)
}

// bookmarkNoHalf checks that either all watches of a backend are Bookmarkers, or none is.
func bookmarkNoHalf(s *suite) {
	watches := map[string]storage.Watch{"WatchList": s.watchAll()}
	if resumer, ok := storage.As[storage.Resumer](s.b); ok {
		w, err := resumer.WatchFrom(s.ctx, anything, anywhere, "", watches["WatchList"].Cursor())
		watches["WatchFrom"] = s.mustOpen(w, err)
	}
	for from, w := range watches {
		_, offered := w.(storage.Bookmarker)
		switch {
		case offered && s.h.NoBookmarker != "":
			s.Fatalf("a watch of %s is a storage.Bookmarker although Harness.NoBookmarker says: %s", from, s.h.NoBookmarker)
		case !offered && s.h.NoBookmarker == "":
			s.Fatalf("a watch of %s is no storage.Bookmarker and Harness.NoBookmarker does not say why", from)
		}
	}
}
