package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A suite is the argument of a case: a new store, and helpers that end the case if a check fails.
type suite struct{ *target }

func newSuite(h *Harness, t testing.TB) *suite {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), h.caseTime())
	t.Cleanup(cancel)
	s := &suite{&target{assertions: &assertions{TB: t, ctx: ctx, timeout: h.Timeout}, h: h}}
	s.open()
	return s
}

// resume opens a watch from a cursor.
func (s *suite) resume(cursor string, f filter) storage.Watch {
	s.Helper()
	w, err := s.resumer().WatchFrom(s.ctx, f.typ, f.tenancy, f.prefix, cursor)
	return s.mustOpen(w, err)
}

// watch opens a watch, which is closed when the case ends.
func (s *suite) watch(typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) storage.Watch {
	s.Helper()
	w, err := s.b.WatchList(s.ctx, typ, tenancy, prefix)
	return s.mustOpen(w, err)
}

// watchAll watches the whole store and expects it to be empty.
func (s *suite) watchAll() storage.Watch {
	s.Helper()
	w := s.watch(anything, anywhere, "")
	if got := s.snapshot(w); len(got) > 0 {
		s.Fatalf("the snapshot of a fresh store holds %s", shortText(got[0]))
	}
	return w
}

func (s *suite) mustOpen(w storage.Watch, err error) storage.Watch {
	s.Helper()
	if err != nil {
		s.Fatalf("opening a watch: %v", err)
	}
	s.Cleanup(w.Close)
	return w
}

// next waits for an event.
func (s *suite) next(w storage.Watch) *resourcepb.WatchEvent {
	s.Helper()
	ev, err := s.nextOrError(w)
	if err != nil {
		s.Fatalf("Next: %v", err)
	}
	return ev
}

// nextOrError waits for a change. It is for goroutines, which may not end the case. It clears More, which depends on concurrent
// writes and has cases of its own.
func (s *suite) nextOrError(w storage.Watch) (*resourcepb.WatchEvent, error) {
	ev, err := s.nextOrBookmark(w)
	if err != nil {
		return nil, err
	}
	if ev.GetBookmark() != nil {
		return nil, errors.New("a bookmark without a request")
	}
	ev.More = false
	return ev, nil
}

// nextOrBookmark waits for an event of any kind, and returns it unchanged.
func (s *suite) nextOrBookmark(w storage.Watch) (*resourcepb.WatchEvent, error) {
	ctx, cancel := s.timeoutContext()
	defer cancel()
	ev, err := w.Next(ctx)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("no event within %v: %w", s.h.Timeout, err)
		}
		return nil, err
	}
	if ev.GetUpsert() == nil && ev.GetDelete() == nil && ev.GetEndOfSnapshot() == nil && ev.GetBookmark() == nil {
		return nil, fmt.Errorf("an empty event: %s", shortText(ev))
	}
	return ev, nil
}

// snapshot reads a watch up to the end of its snapshot and returns the resources in it.
func (s *suite) snapshot(w storage.Watch) []*resourcepb.Resource {
	s.Helper()
	var resources []*resourcepb.Resource
	for {
		ev := s.next(w)
		switch {
		case ev.GetEndOfSnapshot() != nil:
			return resources
		case ev.GetUpsert() != nil:
			resources = append(resources, ev.GetUpsert().GetResource())
		default:
			s.Fatalf("a snapshot holds %s", shortText(ev))
		}
	}
}

// expectUpsert demands that the next event is the upsert of want.
func (s *suite) expectUpsert(w storage.Watch, want *resourcepb.Resource) {
	s.Helper()
	s.expectEvent(w, upsertEvent(want))
}

// expectDelete demands that the next event is the deletion of want, the last stored resource.
func (s *suite) expectDelete(w storage.Watch, want *resourcepb.Resource) {
	s.Helper()
	s.expectEvent(w, deleteEvent(want))
}

func (s *suite) expectEvent(w storage.Watch, want *resourcepb.WatchEvent) {
	s.Helper()
	s.equal("Next", s.next(w), want)
}

// A topic is the cases of one file.
type topic struct {
	name  string
	cases []testCase
}

// A testCase gets a suite with a new store. It does not sleep or read a clock. Harness.Timeout bounds the wait for everything
// that must happen. To prove that an event does not happen, a case waits for an event that must come after it.
type testCase struct {
	name      string
	needs     need
	exclusive bool // not beside other cases
	run       func(s *suite)
}

// runCase runs a case on a new store.
func runCase(h *Harness, t testing.TB, c testCase) {
	t.Helper()
	c.run(newSuite(h, t))
}
