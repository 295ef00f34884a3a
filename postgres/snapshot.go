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
// Snapshots of one primary, taken one after the other, are ordered: what the earlier one sees the later one sees as well.
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

// larger returns the one that sees more.
func larger(a, b *snapshot) *snapshot {
	if b.covers(a) {
		return b
	}
	return a
}
