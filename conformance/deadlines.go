package conformance

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var deadlineCases = topic{"Deadlines", []testCase{
	{name: "OverBeforeTheCall", run: deadlineCancelledBefore},
	{name: "OrderOfErrors", run: deadlineOrder},
	{name: "CancelledDuringWrites", run: deadlineCancelled},
	{name: "CancelledDuringReads", run: deadlineReads},
	{name: "ImpatientNext", run: deadlineShort},
	{name: "ImpatientNextAfterCursor", needs: needResumer, run: deadlineShortResumed},
}}

// deadlineCancelledBefore makes every call with a context that has ended. The call returns the context's error and has no effect.
func deadlineCancelledBefore(s *suite) {
	w := s.watchAll()
	stored := s.create("a")
	s.expectUpsert(w, stored)
	passed, cancel := context.WithDeadline(s.ctx, time.Unix(0, 0))
	defer cancel()
	for name, call := range allCalls(s, stored, w.Cursor()) {
		s.wantError(name+" with a cancelled context", call(cancelledContext()), context.Canceled)
		s.wantError(name+" with a deadline that has passed", call(passed), context.DeadlineExceeded)
	}
	for _, name := range []string{"b", "c"} {
		_, err := s.b.WriteCAS(cancelledContext(), newThing(name))
		s.wantError("WriteCAS with a cancelled context", err, context.Canceled)
		s.checkAbsent(thingID(name))
	}
	s.checkStored(stored)
	s.expectUpsert(w, s.update(stored))
}

// deadlineCancelled cancels writes at random moments. The result is success, or an error that reports whether the write may have
// been sent. Later writers find a consistent store.
func deadlineCancelled(s *suite) {
	const workers = 4
	s.parallel(workers, func(worker int) error {
		res, err := s.b.WriteCAS(s.ctx, newThing(fmt.Sprintf("name-%d", worker)))
		if err != nil {
			return err
		}
		for i := range s.scale(24) {
			ctx, cancel := context.WithCancel(s.ctx)
			go func() {
				for range i * i {
					runtime.Gosched()
				}
				cancel()
			}()
			before := res
			next := withNewData(before)
			stored, err := s.b.WriteCAS(ctx, next)
			<-ctx.Done()
			cancel()
			now, readErr := s.b.Read(s.ctx, strong, before.Id)
			if readErr != nil {
				return readErr
			}
			switch {
			case err == nil && now.Version != stored.Version:
				return fmt.Errorf("a write succeeded with version %q, then version %q was read", stored.Version, now.Version)
			case err == nil:
			case !errors.Is(err, context.Canceled):
				return fmt.Errorf("a cancelled write: got error %v, want context.Canceled", quoteError(err))
			case !errors.Is(err, storage.ErrInconsistent) && now.Version != before.Version:
				return fmt.Errorf("a cancelled write says that nothing was sent (%v), but the version went from %q to %q", quoteError(err), before.Version, now.Version)
			}
			if err != nil {
				// A write with an unknown outcome may still arrive. The next write overtakes it or conflicts with it.
				if now, err = resolveCreate(s, before.Id.Name); err != nil {
					return err
				}
			}
			res = now
		}
		return nil
	})
}

// resolveCreate writes to a key until a write succeeds. No earlier write can arrive after that.
func resolveCreate(s *suite, name string) (*resourcepb.Resource, error) {
	for {
		res, err := s.b.Read(s.ctx, strong, withUid(thingID(name), ""))
		if err != nil {
			return nil, err
		}
		if res, err = s.b.WriteCAS(s.ctx, withNewData(res)); !errors.Is(err, storage.ErrCASFailure) {
			return res, err
		}
	}
}

// deadlineReads cancels all reading calls. Each returns the right answer or the context's error.
func deadlineReads(s *suite) {
	stored := s.create("a")
	s.checkOwned(stored.Id)
	awaitRead(s, s.b, stored.Id, stored)
	calls := allCalls(s, stored, s.watch(anything, anywhere, "").Cursor())
	for _, changing := range []string{"WriteCAS", "DeleteCAS", "Commit", "WatchFrom"} {
		delete(calls, changing)
	}
	for i := range s.scale(20) {
		for name, call := range calls {
			ctx, cancel := context.WithCancel(s.ctx)
			outcome := make(chan error, 1)
			go func() { outcome <- call(ctx) }()
			for range i * i {
				runtime.Gosched()
			}
			cancel()
			if err := s.result(name, outcome); err != nil {
				s.wantError(name+", cancelled", err, context.Canceled)
			}
		}
	}
	s.checkStored(stored)
}

// shortDeadline waits for each event by calls of Next whose deadlines are shorter than a database may need.
type shortDeadline struct{ storage.Watch }

func (w shortDeadline) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	for {
		soon, cancel := context.WithTimeout(ctx, time.Millisecond)
		ev, err := w.Watch.Next(soon)
		cancel()
		if ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return ev, err
		}
	}
}

// deadlineShort reads a long snapshot and later events with deadlines that are too short for a page. A call continues the work
// of the call before it.
func deadlineShort(s *suite) {
	all := createMany(s, s.scale(200))
	w := shortDeadline{s.watch(anything, anywhere, "")}
	s.equalLists("a snapshot read with short deadlines", s.snapshot(w), all)
	s.expectUpsert(w, s.update(all[0]))
}

// deadlineShortResumed does the same with the changes after a cursor.
func deadlineShortResumed(s *suite) {
	cursor := s.watchAll().Cursor()
	var want []*resourcepb.WatchEvent
	for _, res := range createMany(s, s.scale(200)) {
		want = append(want, upsertEvent(res))
	}
	w := shortDeadline{s.resume(cursor, allFilter)}
	expectPerKey(s, w, want...)
	s.expectUpsert(w, s.create("last"))
}

// awaitRead waits until an eventual read through b returns stored, or nothing if stored is nil.
func awaitRead(s *suite, b storage.Backend, id *resourcepb.ID, stored *resourcepb.Resource) {
	s.Helper()
	s.eventually("an eventual Read", func() error {
		got, err := b.Read(s.ctx, eventual, id)
		var m storage.GroupVersionMismatchError
		if errors.As(err, &m) {
			got, err = m.Stored, nil
		}
		if stored == nil && errors.Is(err, storage.ErrNotFound) {
			return nil
		}
		if stored != nil && got.GetVersion() == stored.Version {
			return nil
		}
		return fmt.Errorf("got version %q, error %v, want version %q", got.GetVersion(), quoteError(err), stored.GetVersion())
	})
}
