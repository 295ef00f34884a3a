package dynamodb

import (
	"slices"
	"sync"
	"time"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage/driver/key"
)

// Eventually consistent reads come from replicas that lag, usually by less than a second. To make them monotonic for the handle, it
// remembers the newest state of each key that it has returned, for as long as any replica could lag behind it: settled. An answer
// that is older than the remembered state is repeated as a strong read. States that were written longer ago need not be remembered,
// so a quiet store costs nothing.
//
// The memory is bounded. If the bound evicts an entry early, all eventual reads are made strongly until that entry would have
// expired: more expensive, never wrong.
const (
	settledAfter = 30 * time.Minute
	maxMarks     = 100_000
)

// watermarks are the newest states that a handle has returned.
type watermarks struct {
	mu       sync.Mutex
	entries  btree.Map[string, watermark]
	queue    []watermarkTime // in order of at
	doubtful time.Time
	max      int
	now      func() time.Time
}

type watermark struct {
	count uint64
	live  bool
}

type watermarkTime struct {
	key   string
	count uint64
	at    time.Time
}

func newWatermarks(now func() time.Time) *watermarks { return &watermarks{max: maxMarks, now: now} }

// recent reports whether a state was written so recently that a replica might lack it. The count contains AWS's time when the write
// was composed. It was sent within composedFor, and accepted within request.SignatureTTL after that; settled exceeds their sum.
func recent(count uint64, now time.Time) bool {
	return count > uint64(now.Add(-settledAfter).UnixMilli())
}

// note remembers the state of a key that was read; h is nil if none was found.
func (w *watermarks) note(k key.Key, h *headItem) {
	if h != nil {
		w.noteState(k, h.ring.count, h.live)
	}
}

func (w *watermarks) noteState(k key.Key, count uint64, live bool) {
	now := w.now()
	if !recent(count, now) {
		return
	}
	name := string(k.Bytes())
	w.mu.Lock()
	defer w.mu.Unlock()
	if known, ok := w.entries.Get(name); ok && known.count >= count {
		return
	}
	w.entries.Set(name, watermark{count, live})
	w.queue = append(w.queue, watermarkTime{name, count, now})
	for len(w.queue) > 0 && (len(w.queue) > w.max || now.Sub(w.queue[0].at) > settledAfter) {
		first := w.queue[0]
		w.queue = w.queue[1:]
		if known, _ := w.entries.Get(first.key); known.count != first.count {
			continue // a newer state of the key is further back in the queue
		}
		w.entries.Delete(first.key)
		if until := first.at.Add(settledAfter); until.After(now) {
			w.doubtful = until
		}
	}
}

// distrust reports whether an entry was evicted early, so that eventual reads cannot be checked.
func (w *watermarks) distrust() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.doubtful.IsZero() && w.now().Before(w.doubtful)
}

// stale reports whether an answer is older than an earlier one.
func (w *watermarks) stale(k key.Key, h *headItem) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entries.Len() == 0 {
		return false
	}
	known, ok := w.entries.Get(string(k.Bytes()))
	switch {
	case !ok:
		return false
	case h == nil:
		return known.live
	}
	return h.ring.count < known.count
}

// anyStale reports whether one of the heads is older than an earlier answer.
func (w *watermarks) anyStale(heads []*headItem) bool {
	return slices.ContainsFunc(heads, func(h *headItem) bool { return h.damage == nil && w.stale(h.key, h) })
}

// missing reports whether a live resource that was returned before in the range (after, upTo] is absent from heads, which are in
// order. An empty after is the beginning of the keys with prefix, an empty upTo their end. Only keys for which within returns true count.
func (w *watermarks) missing(prefix, after, upTo string, heads []*headItem, within func(name string) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.entries.Len() == 0 {
		return false
	}
	there := make(map[string]bool, len(heads))
	for _, h := range heads {
		there[string(h.key.Bytes())] = true
	}
	gone := false
	w.entries.Ascend(max(prefix, after), func(name string, known watermark) bool {
		if len(name) < len(prefix) || name[:len(prefix)] != prefix || upTo != "" && name > upTo {
			return false
		}
		gone = known.live && name != after && !there[name] && within(name)
		return !gone
	})
	return gone
}
