package conformance

import (
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/leaks"
)

var leakCases = topic{"Leaks", []testCase{
	{name: "Goroutines", exclusive: true, run: leakGoroutines},
}}

// leakGoroutines opens a store, uses all of it, and closes it with open watches and listings. Goroutines that exist for the
// life of the process (a pool of the runtime, a driver's global) started with the store of the case.
func leakGoroutines(s *suite) {
	useAll(s)
	s.closeBackend(s.b)

	before, err := leaks.IgnoreCurrent()
	s.noError("list the goroutines", err)
	for range 2 {
		s.open()
		useAll(s)
		s.closeBackend(s.b)
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := s.timeoutContext()
	defer cancel()
	for {
		if err = leaks.Find(before); err == nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			s.Fatalf("after Close: %v", err)
		}
	}
}

// useAll leaves open watches, one with a waiting reader, and an unfinished listing.
func useAll(s *suite) {
	s.Helper()
	kept := s.create("kept")
	s.update(s.create("another"))
	watches := []storage.Watch{s.watch(anything, anywhere, ""), s.watch(things, home, "k"), s.watch(things, home, "")}
	s.snapshot(watches[0])
	s.next(watches[1])
	if resumer, ok := storage.As[storage.Resumer](s.b); ok {
		w, err := resumer.WatchFrom(s.ctx, things, home, "", watches[0].Cursor())
		watches = append(watches, s.mustOpen(w, err))
	}
	if pager, ok := storage.As[storage.Pager](s.b); ok {
		_, err := pager.ListPage(s.ctx, things, home, "", storage.ListOptions{Limit: 1})
		s.noError("ListPage", err)
	}
	s.list(things, home, "")
	kept = s.update(kept)
	s.expectUpsert(watches[0], kept)
	s.delete(kept)
	waiting := make(chan error, 1)
	go func() {
		var err error
		for err == nil {
			_, err = watches[0].Next(s.ctx)
		}
		waiting <- err
	}()
	s.closeBackend(s.b)
	s.wantError("Next beside Close of the backend", s.result("Next beside Close of the backend", waiting), storage.ErrWatchClosed)
}
