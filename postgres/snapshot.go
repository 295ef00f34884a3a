package postgres

import (
	"errors"
	"slices"
	"strconv"
	"strings"
)

// snapshot is what pg_current_snapshot() returns: which transactions a statement sees. Transactions below xmin have ended,
// those from xmax on have not begun, and of those between, the ones in flight were still running. Of the transactions that
// ended, those that failed left no rows, so for a row that can be read, "had ended" means "was visible".
//
// Snapshots of one primary, taken one after the other, are ordered: what the earlier one sees the later one sees as well. A
// snapshot can also be put together: any set of transactions that lacks a few below its highest has this form.
type snapshot struct {
	xmin, xmax uint64
	inFlight   []uint64 // rising, from xmin to below xmax
}

var errSnapshot = errors.New("malformed snapshot")

// parseSnapshot reads the text form, xmin:xmax:xid,xid,…
func parseSnapshot(text string) (*snapshot, error) {
	low, rest, found1 := strings.Cut(text, ":")
	high, list, found2 := strings.Cut(rest, ":")
	if !found1 || !found2 {
		return nil, errSnapshot
	}
	s := &snapshot{}
	var err error
	if s.xmin, err = strconv.ParseUint(low, 10, 63); err != nil {
		return nil, errSnapshot
	}
	if s.xmax, err = strconv.ParseUint(high, 10, 63); err != nil || s.xmax < s.xmin {
		return nil, errSnapshot
	}
	if list == "" {
		return s, nil
	}
	last := s.xmin
	for part := range strings.SplitSeq(list, ",") {
		xid, err := strconv.ParseUint(part, 10, 63)
		if err != nil || xid < last || xid >= s.xmax || len(s.inFlight) > 0 && xid == last {
			return nil, errSnapshot
		}
		s.inFlight = append(s.inFlight, xid)
		last = xid
	}
	return s, nil
}

// String returns the text form.
func (s *snapshot) String() string {
	b := strconv.AppendUint(nil, s.xmin, 10)
	b = append(b, ':')
	b = strconv.AppendUint(b, s.xmax, 10)
	b = append(b, ':')
	for i, xid := range s.inFlight {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, xid, 10)
	}
	return string(b)
}

// sees tells whether a transaction that left rows is visible.
func (s *snapshot) sees(xid uint64) bool {
	if xid < s.xmin {
		return true
	}
	if xid >= s.xmax {
		return false
	}
	_, running := slices.BinarySearch(s.inFlight, xid)
	return !running
}

// covers tells whether s sees all that o sees. A nil o sees nothing.
func (s *snapshot) covers(o *snapshot) bool {
	if o == nil || s == o {
		return true
	}
	if s == nil || o.xmax > s.xmax {
		return false
	}
	for _, xid := range s.inFlight {
		if o.sees(xid) {
			return false
		}
	}
	return true
}

// union returns what sees all that s or o see. A nil one sees nothing.
func (s *snapshot) union(o *snapshot) *snapshot {
	switch {
	case s.covers(o):
		return s
	case o.covers(s):
		return o
	case s.xmax < o.xmax:
		s, o = o, s
	}
	both := &snapshot{xmax: s.xmax}
	for _, xid := range s.inFlight {
		if !o.sees(xid) {
			both.inFlight = append(both.inFlight, xid)
		}
	}
	both.xmin = both.lowest()
	return both
}

// adding returns what sees one transaction more than s does.
func (s *snapshot) adding(xid uint64) *snapshot {
	more := &snapshot{xmax: max(s.xmax, xid+1), inFlight: make([]uint64, 0, len(s.inFlight)+s.missing(xid))}
	for _, running := range s.inFlight {
		if running != xid {
			more.inFlight = append(more.inFlight, running)
		}
	}
	for skipped := s.xmax; skipped < xid; skipped++ {
		more.inFlight = append(more.inFlight, skipped)
	}
	more.xmin = more.lowest()
	return more
}

// missing counts the transactions between s and one that it does not see.
func (s *snapshot) missing(xid uint64) int {
	if xid < s.xmax {
		return 0
	}
	return int(xid - s.xmax)
}

// lowest returns the first transaction that s does not see.
func (s *snapshot) lowest() uint64 {
	if len(s.inFlight) > 0 {
		return s.inFlight[0]
	}
	return s.xmax
}
