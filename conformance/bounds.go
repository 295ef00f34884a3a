package conformance

import (
	"fmt"

	"github.com/ashlar-dev/storage"
)

// WatchEvent.more says where commits end.
var boundCases = topic{"Bounds", []testCase{
	{name: "AcrossPages", needs: needBounds | needTransactor | needResumer, run: boundsAcrossPages},
}}

// boundsAcrossPages reads transactions of the largest size from history. Their events lie on several pages.
func boundsAcrossPages(s *suite) {
	w := s.watchAll()
	start, size, count := w.Cursor(), s.transactor().MaxOps(), 0
	events := make(map[string]int) // of a transaction, by prefix
	for ; count*size < s.scale(2400); count++ {
		ops := make([]storage.Op, size)
		for i := range ops {
			prefix := []string{"odd-", "even-"}[i%2]
			if i == size-1 {
				prefix = "third-"
			}
			ops[i].Write = newThing(fmt.Sprintf("%s%d-%d", prefix, count, i))
			if count == 0 {
				events[prefix]++
			}
		}
		s.commit(ops...)
	}
	for prefix, n := range events {
		boundsCheck(s, s.resume(start, filter{things, home, prefix}), prefix, n, count)
	}
	boundsCheck(s, s.resume(start, allFilter), "", size, count)
	boundsCheck(s, w, "", size, count)
}

// boundsCheck reads count commits of n events each.
func boundsCheck(s *suite, w storage.Watch, prefix string, n, count int) {
	s.Helper()
	for i := range n * count {
		ev, err := s.nextOrBookmark(w)
		s.noError("Next", err)
		if more := i%n < n-1; ev.GetMore() != more {
			s.Fatalf("event %d of the commits of %d events with prefix %q: more is %v, want %v", i, n, prefix, ev.GetMore(), more)
		}
	}
}
