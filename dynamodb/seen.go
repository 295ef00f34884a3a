package dynamodb

import (
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage/driver/key"
)

// Eventually consistent reads come from replicas that lag, usually by less than a second. So that they are monotonic for the
// handle all the same, it remembers the newest state of each key that it has shown to anybody, for as long as any replica could
// possibly lag behind it: settled. An answer that is older than what is remembered is asked for again, strongly. States that
// were written longer ago need not be remembered, so a quiet store costs nothing.
//
// The memory is bounded. Where the bound forces an entry out before its time, eventual reads are made strongly until that time
// is over: dearer, never wrong.
const (
	settled = 30 * time.Minute
	seenMax = 100_000
)

type seen struct {
	mu       sync.Mutex
	entries  btree.Map[string, seenEntry]
	queue    []seenAt // in order of at
	doubtful time.Time
	max      int
	now      func() time.Time
}

type seenEntry struct {
	count uint64
	live  bool
}

type seenAt struct {
	key   string
	count uint64
	at    time.Time
}

func newSeen(now func() time.Time) *seen { return &seen{max: seenMax, now: now} }

// recent reports whether a state was written so lately that a replica might not have it. The count holds AWS's time when the write
// was composed; it was sent within composedFor, and accepted within signatureLife after that, which settled has room for.
func recent(count uint64, now time.Time) bool {
	return count > uint64(now.Add(-settled).UnixMilli())
}

// note remembers what was read of a key; h is nil where nothing was.
func (s *seen) note(k key.Key, h *head) {
	if h != nil {
		s.noteState(k, h.stamp.count, h.live)
	}
}

func (s *seen) noteState(k key.Key, count uint64, live bool) {
	now := s.now()
	if !recent(count, now) {
		return
	}
	name := string(k.Bytes())
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.entries.Get(name); ok && known.count >= count {
		return
	}
	s.entries.Set(name, seenEntry{count, live})
	s.queue = append(s.queue, seenAt{name, count, now})
	for len(s.queue) > 0 && (len(s.queue) > s.max || now.Sub(s.queue[0].at) > settled) {
		first := s.queue[0]
		s.queue = s.queue[1:]
		if known, _ := s.entries.Get(first.key); known.count != first.count {
			continue // a newer state stands further back
		}
		s.entries.Delete(first.key)
		if until := first.at.Add(settled); until.After(now) {
			s.doubtful = until
		}
	}
}

// distrust reports whether something was forgotten before its time, so that eventual reads cannot be checked.
func (s *seen) distrust() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.doubtful.IsZero() && s.now().Before(s.doubtful)
}

// stale reports whether an answer is older than one given before.
func (s *seen) stale(k key.Key, h *head) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries.Len() == 0 {
		return false
	}
	known, ok := s.entries.Get(string(k.Bytes()))
	switch {
	case !ok:
		return false
	case h == nil:
		return known.live
	}
	return h.stamp.count < known.count
}

// missing reports whether a live resource that was seen in the range (after, upTo] is not among heads, which are in order. after
// "" is the beginning of what begins with prefix, upTo "" its end.
func (s *seen) missing(prefix, after, upTo string, heads []*head) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.entries.Len() == 0 {
		return false
	}
	there := make(map[string]bool, len(heads))
	for _, h := range heads {
		there[string(h.key.Bytes())] = true
	}
	gone := false
	s.entries.Ascend(max(prefix, after), func(name string, known seenEntry) bool {
		if len(name) < len(prefix) || name[:len(prefix)] != prefix || upTo != "" && name > upTo {
			return false
		}
		gone = known.live && name != after && !there[name]
		return !gone
	})
	return gone
}
