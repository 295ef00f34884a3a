package conformance

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

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
