package postgres

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cursor"
)

// history is a database in small: transactions begin, write and commit in any order, and snapshots are taken in between.
type history struct {
	next      uint64
	open      []uint64
	committed []entry
	drawn     map[uint64][]int64
	seq       int64
}

type entry struct {
	xid uint64
	seq int64
}

func (h *history) step(t *rapid.T) {
	switch action := rapid.IntRange(0, 2).Draw(t, "action"); {
	case action == 0 || len(h.open) == 0:
		h.open = append(h.open, h.next)
		h.next++
	case action == 1:
		xid := rapid.SampledFrom(h.open).Draw(t, "writer")
		h.seq++
		h.drawn[xid] = append(h.drawn[xid], h.seq)
	default:
		xid := rapid.SampledFrom(h.open).Draw(t, "ends")
		h.open = slices.DeleteFunc(h.open, func(o uint64) bool { return o == xid })
		for _, seq := range h.drawn[xid] {
			h.committed = append(h.committed, entry{xid, seq})
		}
	}
}

func (h *history) snapshot() *snapshot {
	s := &snapshot{xmin: h.next, xmax: h.next, inFlight: slices.Sorted(slices.Values(h.open))}
	if len(s.inFlight) > 0 {
		s.xmin = s.inFlight[0]
	}
	return s
}

// TestFollowing walks a watch through polls and transactions that are handed over, as the feed does, from a snapshot taken at any
// moment, cuts it off at any event, and lets another one go on from the cursor: together they must see each change exactly
// once.
func TestFollowing(t *testing.T) {
	t.Parallel()
	store := cursor.StoreID{7}
	rapid.Check(t, func(t *rapid.T) {
		h := &history{next: 100, drawn: map[uint64][]int64{}}
		steps := func(label string) {
			for range rapid.IntRange(0, 12).Draw(t, label) {
				h.step(t)
			}
		}
		steps("before")
		old := h.snapshot() // where the feed is
		var at position     // where the watch is
		seen := map[entry]int{}
		began := false
		publish := func(until *snapshot) {
			var batch []entry
			for _, c := range h.committed {
				if !old.sees(c.xid) && until.sees(c.xid) {
					batch = append(batch, c)
				}
			}
			slices.SortFunc(batch, func(x, y entry) int { return int(x.seq - y.seq) })
			for _, c := range batch {
				if !began || at.contains(c.xid, c.seq) {
					continue
				}
				seen[c]++
				at = at.with(position{old: old, until: until, seq: c.seq, xid: c.xid})
				if rapid.Bool().Draw(t, "resume") {
					var err error
					if at, err = parseCursor(store, at.cursor(store)); err != nil {
						t.Fatal(err)
					}
				}
			}
			if began {
				at = at.with(position{old: until})
			}
			old = until
		}
		for range rapid.IntRange(1, 6).Draw(t, "polls") {
			steps("during")
			if !began && rapid.Bool().Draw(t, "begin") {
				began = true
				at = position{old: h.snapshot()}
				for _, c := range h.committed {
					seen[c]++ // the watch's own snapshot shows it
				}
				steps("between snapshot and poll")
			}
			for _, c := range h.committed {
				if !old.sees(c.xid) && rapid.Bool().Draw(t, "hand over") {
					publish(old.adding(c.xid))
				}
			}
			publish(h.snapshot())
		}
		if !began {
			return
		}
		for _, c := range h.committed {
			want := 1
			if !old.sees(c.xid) {
				want = 0
			}
			if seen[c] != want && !(want == 0 && at.contains(c.xid, c.seq)) {
				t.Fatalf("change %v was seen %d times, expected %d; the watch is at %v", c, seen[c], want, at)
			}
			if at.contains(c.xid, c.seq) != (seen[c] == 1) {
				t.Fatalf("change %v was seen %d times, and the position says %v", c, seen[c], at.contains(c.xid, c.seq))
			}
		}
	})
}

func TestCursorText(t *testing.T) {
	t.Parallel()
	store := cursor.StoreID{1}
	p := position{old: parse(t, "5:9:5,7"), until: parse(t, "7:12:7"), seq: 44}
	got, err := parseCursor(store, p.cursor(store))
	if err != nil {
		t.Fatal(err)
	}
	if got.old.String() != p.old.String() || got.until.String() != p.until.String() || got.seq != p.seq {
		t.Errorf("read back: %v, expected %v", got, p)
	}
	if _, err := parseCursor(cursor.StoreID{2}, p.cursor(store)); !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("a cursor of another store: %v", err)
	}
	for _, payload := range []string{"", "x", "\x02;", "\x02a;", "\x025:9:5,7", "\x025:9:5,7;x", "\x025:9:5,7;;"} {
		if _, err := parseCursor(store, cursor.Encode(cursor.Watch, store, []byte(payload))); !errors.Is(err, storage.ErrInvalid) {
			t.Errorf("payload %q: %v", payload, err)
		}
	}
}
