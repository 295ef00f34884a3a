package conformance

import (
	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// expectPerKey demands that the next events are exactly want, in this order for each key; the keys may be mixed in any way unless
// the database has an order across them.
func expectPerKey(s *suite, w storage.Watch, want ...*resourcepb.WatchEvent) {
	s.Helper()
	left := make(map[string][]*resourcepb.WatchEvent)
	for _, ev := range want {
		key := keyOf(subject(ev).GetId())
		left[key] = append(left[key], ev)
	}
	for i := range want {
		got := s.next(w)
		if subject(got) == nil {
			s.Fatalf("Next: %s, in the middle of the changes", shortText(got))
		}
		if s.h.NoOrderAcrossKeys == "" {
			s.equal("Next", got, want[i])
			continue
		}
		key := keyOf(subject(got).GetId())
		if len(left[key]) == 0 {
			s.Fatalf("Next: unexpected %s", shortText(got))
		}
		s.equal("Next", got, left[key][0])
		left[key] = left[key][1:]
	}
}

// expectAnyOrder demands that the next events are exactly want, each key once, in any order: the events of one transaction.
func expectAnyOrder(s *suite, w storage.Watch, want ...*resourcepb.WatchEvent) {
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
			s.Fatalf("Next: unexpected %s", shortText(got))
		}
		s.equal("Next", got, expected)
		delete(left, key)
	}
}
