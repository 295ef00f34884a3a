package conformance

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var watcherCases = topic{"Watchers", []testCase{
	{name: "Slow", run: watchersSlow},
	{name: "Many", run: watchersMany},
	{name: "AfterSilence", run: watchersAfterSilence},
	{name: "CursorBesideNext", run: watchersCursorBesideNext},
}}

// watchersSlow leaves watches unread, one of them inside its snapshot, while other watches are read. No watch waits for a slow one,
// and the slow ones miss no event.
func watchersSlow(s *suite) {
	start := s.create("a")
	unread := s.watch(things, home, "")
	slow, fast := s.watch(things, home, ""), s.watch(things, home, "")
	s.snapshot(slow)
	s.snapshot(fast)
	res := start
	var want []*resourcepb.Resource
	for range s.scale(300) {
		next := withNewData(res)
		next.Data.Value = randomBytes(1000)
		res = s.write(next)
		want = append(want, res)
		s.expectUpsert(fast, res)
	}
	s.equalLists("the snapshot, read late", s.snapshot(unread), []*resourcepb.Resource{start})
	for _, w := range []storage.Watch{slow, unread} {
		for _, res := range want {
			s.expectUpsert(w, res)
		}
	}
	res = s.update(res)
	for _, w := range []storage.Watch{slow, fast, unread} {
		s.expectUpsert(w, res)
	}
}

func watchersMany(s *suite) {
	watches := make([]storage.Watch, s.scale(400))
	for i := range watches {
		watches[i] = s.watch(things, home, "")
	}
	var want []*resourcepb.Resource
	for i := range 4 {
		want = append(want, s.create(fmt.Sprintf("name-%d", i)))
	}
	for _, w := range watches {
		if got := s.snapshot(w); len(got) > 0 {
			s.Fatalf("the snapshot of a fresh store holds %s", shortText(got[0]))
		}
		var events []*resourcepb.WatchEvent
		for _, res := range want {
			events = append(events, upsertEvent(res))
		}
		expectPerKey(s, w, events...)
	}
	// All watches wait while the next change is made.
	var ready, done sync.WaitGroup
	errs := make([]error, len(watches))
	got := make([]*resourcepb.WatchEvent, len(watches))
	for i, w := range watches {
		ready.Add(1)
		done.Go(func() {
			ready.Done()
			got[i], errs[i] = s.nextOrError(w)
		})
	}
	ready.Wait()
	last := s.create("last")
	done.Wait()
	for i := range watches {
		s.noError("Next of one of many watches", errs[i])
		s.equal("Next of one of many watches", got[i], upsertEvent(last))
	}
}

// watchersAfterSilence keeps watches without an event for some seconds, one of them inside one call of Next. No later event is missing.
func watchersAfterSilence(s *suite) {
	const silence = 4 * time.Second
	blocked, asked := s.watchAll(), s.watchAll()
	outcome := make(chan error, 1)
	var got *resourcepb.WatchEvent
	go func() {
		var err error
		got, err = blocked.Next(s.ctx)
		outcome <- err
	}()
	ctx, cancel := context.WithTimeout(s.ctx, silence)
	defer cancel()
	_, err := asked.Next(ctx)
	s.wantError("Next without events", err, context.DeadlineExceeded)
	want := s.create("after-silence")
	s.expectUpsert(asked, want)
	s.noError("Next, which waits since before the silence", s.result("Next, which waits since before the silence", outcome))
	s.equal("Next, which waits since before the silence", got, upsertEvent(want))
}

// watchersCursorBesideNext calls Cursor and Close while another goroutine is in Next.
func watchersCursorBesideNext(s *suite) {
	w := s.watchAll()
	done := make(chan error, 1)
	go func() {
		for {
			if _, err := w.Next(s.ctx); err != nil {
				done <- err
				return
			}
		}
	}()
	res := s.create("a")
	for range s.scale(40) {
		w.Cursor()
		res = s.update(res)
		w.Cursor()
	}
	s.parallel(4, func(int) error {
		w.Close()
		w.Cursor()
		return nil
	})
	s.wantError("Next of a closed watch", s.result("Next of a closed watch", done), storage.ErrWatchClosed)
}
