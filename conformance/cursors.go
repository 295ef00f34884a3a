package conformance

import (
	"errors"
	"strconv"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var cursorCases = topic{"Cursors", []testCase{
	{name: "Garbage", needs: needResumer, run: cursorGarbage},
	{name: "AnotherStore", needs: needResumer, run: cursorAnotherStore},
	{name: "MovesWhileQuiet", needs: needResumer, run: cursorQuiet},
	{name: "NoHalfCapability", run: cursorNoHalf},
}}

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

// cursorNoHalf checks that a backend that cannot resume returns empty cursors.
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
