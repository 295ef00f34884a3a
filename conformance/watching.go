package conformance

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// watch opens a watch, which is closed when the case ends.
func (s *suite) watch(typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) storage.Watch {
	s.Helper()
	w, err := s.b.WatchList(s.ctx, typ, tenancy, prefix)
	return s.opened(w, err)
}

// watchAll watches the whole store and expects it to be empty.
func (s *suite) watchAll() storage.Watch {
	s.Helper()
	w := s.watch(anything, anywhere, "")
	if got := s.snapshot(w); len(got) > 0 {
		s.Fatalf("the snapshot of a fresh store holds %s", text(got[0]))
	}
	return w
}

func (s *suite) opened(w storage.Watch, err error) storage.Watch {
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

// nextOrError waits for a change, for goroutines that may not end the case. Whether its commit goes on is left out: it depends
// on who wrote at the same time, and has cases of its own.
func (s *suite) nextOrError(w storage.Watch) (*resourcepb.WatchEvent, error) {
	ev, err := s.nextOrBookmark(w)
	if err != nil {
		return nil, err
	}
	if ev.GetBookmark() != nil {
		return nil, errors.New("a bookmark that nobody asked for")
	}
	ev.More = false
	return ev, nil
}

// nextOrBookmark waits for an event of any kind, and returns it as it is.
func (s *suite) nextOrBookmark(w storage.Watch) (*resourcepb.WatchEvent, error) {
	ctx, cancel := s.patience()
	defer cancel()
	ev, err := w.Next(ctx)
	if err != nil {
		if errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("no event within %v: %w", s.h.Timeout, err)
		}
		return nil, err
	}
	if ev.GetUpsert() == nil && ev.GetDelete() == nil && ev.GetEndOfSnapshot() == nil && ev.GetBookmark() == nil {
		return nil, fmt.Errorf("an empty event: %s", text(ev))
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
			s.Fatalf("a snapshot holds %s", text(ev))
		}
	}
}

// upsert demands that the next event is the upsert of want.
func (s *suite) upsert(w storage.Watch, want *resourcepb.Resource) {
	s.Helper()
	s.event(w, upserted(want))
}

// deletion demands that the next event is the deletion of want, the last stored resource.
func (s *suite) deletion(w storage.Watch, want *resourcepb.Resource) {
	s.Helper()
	s.event(w, deleted(want))
}

func (s *suite) event(w storage.Watch, want *resourcepb.WatchEvent) {
	s.Helper()
	s.same("Next", s.next(w), want)
}

func upserted(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Upsert_{Upsert: &resourcepb.WatchEvent_Upsert{Resource: res}}}
}

func deleted(res *resourcepb.Resource) *resourcepb.WatchEvent {
	return &resourcepb.WatchEvent{Event: &resourcepb.WatchEvent_Delete_{Delete: &resourcepb.WatchEvent_Delete{Resource: res}}}
}

// subject is the resource of an event, nil at the end of a snapshot.
func subject(ev *resourcepb.WatchEvent) *resourcepb.Resource {
	if d := ev.GetDelete(); d != nil {
		return d.GetResource()
	}
	return ev.GetUpsert().GetResource()
}

// perKey demands that the next events are exactly want, in this order for each key; the keys may be mixed in any way unless
// the database has an order across them.
func perKey(s *suite, w storage.Watch, want ...*resourcepb.WatchEvent) {
	s.Helper()
	left := make(map[string][]*resourcepb.WatchEvent)
	for _, ev := range want {
		key := keyOf(subject(ev).GetId())
		left[key] = append(left[key], ev)
	}
	for i := range want {
		got := s.next(w)
		if subject(got) == nil {
			s.Fatalf("Next: %s, in the middle of the changes", text(got))
		}
		if s.h.NoOrderAcrossKeys == "" {
			s.same("Next", got, want[i])
			continue
		}
		key := keyOf(subject(got).GetId())
		if len(left[key]) == 0 {
			s.Fatalf("Next: unexpected %s", text(got))
		}
		s.same("Next", got, left[key][0])
		left[key] = left[key][1:]
	}
}

// anyOrder demands that the next events are exactly want, each key once, in any order: the events of one transaction.
func anyOrder(s *suite, w storage.Watch, want ...*resourcepb.WatchEvent) {
	s.Helper()
	left := make(map[string]*resourcepb.WatchEvent)
	for _, ev := range want {
		left[keyOf(subject(ev).GetId())] = ev
	}
	for range want {
		got := s.next(w)
		key := keyOf(subject(got).GetId())
		expected, ok := left[key]
		if !ok {
			s.Fatalf("Next: unexpected %s", text(got))
		}
		s.same("Next", got, expected)
		delete(left, key)
	}
}

// drained is what has been read from a watch.
type drained struct {
	snapshot []*resourcepb.Resource
	events   []*resourcepb.WatchEvent
}

// drain reads w until enough says so. It is for goroutines, so it returns its error.
func drain(s *suite, w storage.Watch, withSnapshot bool, enough func(*drained) bool) (*drained, error) {
	d := &drained{}
	inSnapshot := withSnapshot
	for inSnapshot || !enough(d) {
		ev, err := s.nextOrError(w)
		if err != nil {
			return d, fmt.Errorf("after %d events: %w", len(d.events), err)
		}
		switch {
		case ev.GetEndOfSnapshot() != nil && !inSnapshot:
			return d, errors.New("an end of snapshot where there is no snapshot")
		case ev.GetEndOfSnapshot() != nil:
			inSnapshot = false
		case inSnapshot && ev.GetDelete() != nil:
			return d, fmt.Errorf("a snapshot holds %s", text(ev))
		case inSnapshot:
			d.snapshot = append(d.snapshot, ev.GetUpsert().GetResource())
		default:
			d.events = append(d.events, proto.CloneOf(ev))
		}
	}
	return d, nil
}
