package postgres

import (
	"maps"
	"slices"
	"testing"
)

// TestOrphansOfMeanwhile makes a session an orphan while the server is queried about another session. Its state is not known yet.
func TestOrphansOfMeanwhile(t *testing.T) {
	t.Parallel()
	w := newWatchdog(nil, nil)
	for pid := range uint32(4) {
		w.orphans[pid] = struct{}{}
	}
	room := w.capacityCh
	w.judgeLocked([]uint32{1, 2}, map[uint32]bool{2: true})
	if left := slices.Sorted(maps.Keys(w.orphans)); !slices.Equal(left, []uint32{0, 2, 3}) {
		t.Errorf("of the orphans 0 to 3, of which 1 and 2 were asked about and 2 is busy, %v are left", left)
	}
	select {
	case <-room:
	default:
		t.Error("the waiting caller was not woken")
	}
}
