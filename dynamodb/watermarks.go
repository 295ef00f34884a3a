package dynamodb

import (
	"slices"
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
	settledAfter = 30 * time.Minute
	maxMarks     = 100_000
)

// watermarks are the newest states that a handle has shown.
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

// recent reports whether a state was written so lately that a replica might not have it. The count holds AWS's time when the write
// was composed; it was sent within composedFor, and accepted within request.SignatureTTL after that, which settled has room for.
func recent(count uint64, now time.Time) bool {
	return count > uint64(now.Add(-settledAfter).UnixMilli())
}

// note remembers what was read of a key; h is nil where nothing was.
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
			continue // a newer state stands further back
		}
		w.entries.Delete(first.key)
		if until := first.at.Add(settledAfter); until.After(now) {
			w.doubtful = until
		}
	}
}

// distrust reports whether something was forgotten before its time, so that eventual reads cannot be checked.
func (w *watermarks) distrust() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.doubtful.IsZero() && w.now().Before(w.doubtful)
}

// stale reports whether an answer is older than one given before.
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

// anyStale reports whether one of the heads is older than one given before.
func (w *watermarks) anyStale(heads []*headItem) bool {
	return slices.ContainsFunc(heads, func(h *headItem) bool { return w.stale(h.key, h) })
}

// missing reports whether a live resource that was shown before in the range (after, upTo] is not among heads, which are in order. after
// "" is the beginning of what begins with prefix, upTo "" its end.
func (w *watermarks) missing(prefix, after, upTo string, heads []*headItem) bool {
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
		gone = known.live && name != after && !there[name]
		return !gone
	})
	return gone
}
