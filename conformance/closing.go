package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var closingCases = topic{"Closing", []testCase{
	{name: "Watch", run: closingWatch},
	{name: "WatchWhileWaiting", run: closingWatchWaiting},
	{name: "CancelledNext", run: closingCancelledNext},
	{name: "Backend", run: closingBackend},
	{name: "BackendEndsWatches", run: closingBackendEndsWatches},
	{name: "BackendWhileBusy", run: closingBackendBusy},
	{name: "OtherHandleStays", needs: needAnother, run: closingOtherHandle},
}}

// closedNext demands that Next returns the error of a closed watch, and of a closed backend if backendClosed is set.
func closedNext(s *suite, what string, w storage.Watch, backendClosed bool) {
	s.Helper()
	ctx, cancel := s.timeoutContext()
	defer cancel()
	for _, ctx := range []context.Context{ctx, cancelledContext()} {
		// The error of a closed watch takes precedence over the context's error.
		ev, err := w.Next(ctx)
		s.wantError("Next "+what, err, storage.ErrWatchClosed)
		if ev != nil {
			s.Fatalf("Next %s: an event beside the error: %s", what, shortText(ev))
		}
		if got := errors.Is(err, storage.ErrClosed); got != backendClosed {
			s.Fatalf("Next %s: the error matches ErrClosed: %t, want %t: %v", what, got, backendClosed, err)
		}
	}
}

func closingWatch(s *suite) {
	for _, name := range []string{"a", "b"} {
		s.create(name)
	}
	fresh, inSnapshot, buffered, other := s.watch(things, home, ""), s.watch(things, home, ""), s.watch(things, home, ""), s.watch(things, home, "")
	s.next(inSnapshot)
	s.snapshot(buffered)
	s.snapshot(other)
	c := s.create("c")
	s.expectUpsert(other, c) // by now the others have it too, or will
	for what, w := range map[string]storage.Watch{"before the snapshot": fresh, "inside a snapshot": inSnapshot, "with an event buffered": buffered} {
		w.Close()
		closedNext(s, "of a watch closed "+what, w, false)
		w.Close()
		closedNext(s, "of a watch closed twice "+what, w, false)
		w.Cursor()
	}
	s.expectUpsert(other, s.update(c))
}

func closingWatchWaiting(s *suite) {
	for range s.scale(8) {
		w := s.watchAll()
		outcome := make(chan error, 1)
		started := make(chan struct{})
		go func() {
			close(started)
			_, err := w.Next(s.ctx)
			outcome <- err
		}()
		<-started
		w.Close()
		s.wantError("Next, closed while it waits", s.result("Next, closed while it waits", outcome), storage.ErrWatchClosed)
	}
}

// closingCancelledNext ends the context of Next before and while it waits: nothing is consumed.
func closingCancelledNext(s *suite) {
	a, b := s.create("a"), s.create("b")
	w := s.watch(things, home, "")
	cancelled := func(where string) {
		s.Helper()
		_, err := w.Next(cancelledContext())
		s.wantError("Next with a cancelled context "+where, err, context.Canceled)
	}
	cancelled("before the snapshot")
	s.expectUpsert(w, a)
	cancelled("inside the snapshot")
	s.expectUpsert(w, b)
	cancelled("before the end of the snapshot")
	if rest := s.snapshot(w); len(rest) > 0 {
		s.Fatalf("the snapshot continues with %s", shortText(rest[0]))
	}
	cancelled("on a quiet watch")
	for range s.scale(20) {
		// The context ends before or while Next waits, or at the moment of the event: Next returns either the event or the error.
		ctx, cancel := context.WithCancel(s.ctx)
		outcome := make(chan error, 1)
		var got *resourcepb.WatchEvent
		go func() {
			var err error
			got, err = w.Next(ctx)
			outcome <- err
		}()
		go cancel()
		a = s.update(a)
		if err := s.result("Next whose context ends", outcome); err == nil {
			s.equal("Next whose context ends", got, upsertEvent(a))
		} else {
			s.wantError("Next whose context ends", err, context.Canceled)
			s.expectUpsert(w, a)
		}
	}
	ctx, cancel := context.WithTimeout(s.ctx, 1)
	defer cancel()
	_, err := w.Next(ctx)
	s.wantError("Next with a deadline that passes", err, context.DeadlineExceeded)
}

func closingBackend(s *suite) {
	w := s.watchAll()
	stored := s.create("a")
	s.expectUpsert(w, stored)
	calls := allCalls(s, stored, w.Cursor())
	for range 2 {
		s.closeBackend(s.b)
		for name, call := range calls {
			s.wantError(name+" after Close", call(s.ctx), storage.ErrClosed)
		}
	}
	s.parallel(4, func(int) error { return s.b.Close() })
}

func closingBackendEndsWatches(s *suite) {
	s.create("a")
	waiting, inSnapshot, buffered, closed := s.watch(things, home, ""), s.watch(things, home, ""), s.watch(things, home, ""), s.watch(things, home, "")
	s.snapshot(waiting)
	s.snapshot(buffered)
	closed.Close()
	s.expectUpsert(waiting, s.create("b"))
	outcome := make(chan error, 1)
	go func() {
		_, err := waiting.Next(s.ctx)
		outcome <- err
	}()
	s.closeBackend(s.b)
	err := s.result("Next, waiting while the backend is closed", outcome)
	s.wantError("Next, waiting while the backend is closed", err, storage.ErrWatchClosed)
	s.wantError("Next, waiting while the backend is closed", err, storage.ErrClosed)
	for _, w := range []storage.Watch{waiting, inSnapshot, buffered} {
		closedNext(s, "of a watch whose backend is closed", w, true)
		// Next keeps returning the first reason.
		w.Close()
		closedNext(s, "of a watch closed after its backend", w, true)
		w.Cursor()
	}
	closedNext(s, "of a watch closed before its backend", closed, false)
}

// closingBackendBusy closes a backend during writes and reads: every call returns, and every acknowledged write is stored.
func closingBackendBusy(s *suite) {
	watched := s.watchAll()
	acknowledged := make([]*resourcepb.Resource, 4)
	outcome := make(chan error, len(acknowledged)+1)
	var started sync.WaitGroup
	started.Add(len(acknowledged))
	b := s.b
	for i := range acknowledged {
		go func() {
			res := newThing(fmt.Sprintf("busy-%d", i))
			for n := 0; ; n++ {
				stored, err := b.WriteCAS(s.ctx, res)
				if n == 2 || n < 2 && err != nil {
					started.Done()
				}
				if err != nil {
					outcome <- err
					return
				}
				acknowledged[i] = stored
				res = withNewData(stored)
			}
		}()
	}
	go func() {
		var err error
		for err == nil {
			_, err = watched.Next(s.ctx)
		}
		outcome <- err
	}()
	s.within("the first writes", started.Wait)
	s.closeBackend(b)
	for range len(acknowledged) + 1 {
		// A write in progress may also report that its outcome is unknown.
		err := s.result("a call beside Close", outcome)
		if !errors.Is(err, storage.ErrClosed) && !errors.Is(err, storage.ErrInconsistent) {
			s.Fatalf("a call beside Close: got error %v, want ErrClosed", quoteError(err))
		}
	}
	if s.h.OneHandle != "" {
		return
	}
	s.b = s.another()
	for _, res := range acknowledged {
		got := s.read(withUid(res.Id, ""))
		if got.Version != res.Version {
			// Only a later write with an unknown outcome may have replaced it.
			_, err := s.b.WriteCAS(s.ctx, withNewData(res))
			s.wantError("WriteCAS at a version that was replaced", err, storage.ErrCASFailure)
		}
	}
}

func closingOtherHandle(s *suite) {
	first, second := s.b, s.another()
	w, err := second.WatchList(s.ctx, anything, anywhere, "")
	s.mustOpen(w, err)
	s.snapshot(w)
	a := s.create("a")
	s.expectUpsert(w, a)
	s.closeBackend(first)
	s.b = second
	s.checkStored(a)
	a = s.update(a)
	s.expectUpsert(w, a)
	s.b = s.another()
	s.checkStored(a)
	s.expectUpsert(w, s.update(a))
}
