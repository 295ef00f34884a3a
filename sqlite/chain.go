package sqlite

import "github.com/ncruces/go-sqlite3"

// The log is the history. Each row holds the number of the previous row of the same resource (prev). The rows between
// the creation and the deletion of a resource form a chain. It starts at the row's number in resources, or in gone
// after a deletion. Nothing else is written for history: an index of the log by key would touch another page for each
// change, which cost a third of the writes per second of small resources.
//
//	resources ──► log 90 ─prev─► log 71 ─prev─► log 12 (created)
//	gone      ──► log 55 (deletion) ─prev─► log 31 ─prev─► log 30 (created)
//
// The log holds all rows above the horizon and, for each resource stored at the horizon, its newest row at or before
// the horizon. So the state of a resource at a row N >= horizon is the first row of its chain that is not above N, and
// the log holds that row.
//
// The chain of a frequently written resource is long, so rows also hold a skip pointer to an older row (jump). It
// points to the newest row whose count is divisible by 32 or, from a row whose own count is, by 1024.
const (
	stepEvery = 32
	leapEvery = 1024
)

// chainEntry is the head of a chain: the newest row of a resource and the columns of table resources about it.
type chainEntry struct {
	seq              int64
	creation, writes int64 // columns created and writes
	step, leap       int64
}

// next returns the entry after another row of the resource, and the skip pointer of that row. last is the last row of
// the same call.
func (l chainEntry) next(seq, last int64) (n chainEntry, jump int64) {
	if l.seq == 0 {
		return chainEntry{seq: seq, creation: last, writes: 1}, 0
	}
	n = chainEntry{seq, l.creation, l.writes + 1, l.step, l.leap}
	jump = l.step
	if n.writes%stepEvery == 0 {
		jump, n.step = l.leap, seq
	}
	if n.writes%leapEvery == 0 {
		n.leap = seq
	}
	return n, jump
}

// rowAt follows a chain from a row above the given number to its first row at or below. It returns 0 if the resource
// did not exist then.
func (c *conn) rowAt(from, above int64) (int64, error) {
	for from > above {
		var prev, jump int64
		exists, err := c.queryRow("chain-pointers", func(s *sqlite3.Stmt) { prev, jump = s.ColumnInt64(0), s.ColumnInt64(1) }, from)
		if err != nil {
			return 0, err
		}
		if !exists {
			return 0, errMissingRow
		}
		if from = prev; jump > above {
			from = jump
		}
	}
	return from, nil
}

// chainCache caches the chain entries of recent writes by version, so that most writes need no lookup. Entries of a
// failed transaction are never requested, because no caller has their versions.
type chainCache struct{ recent, previous map[position]chainEntry }

// chainCacheSize is the number of entries in a generation. The two generations use about 5 MB in a process that writes
// as many keys.
const chainCacheSize = 32 << 10

func (k *chainCache) get(at position) (chainEntry, bool) {
	l, ok := k.recent[at]
	if !ok {
		l, ok = k.previous[at]
	}
	return l, ok
}

// replace stores the entry of a new version and drops the old version's entry.
func (k *chainCache) replace(old, at position, l chainEntry) {
	delete(k.recent, old)
	if k.recent == nil || len(k.recent) >= chainCacheSize {
		k.recent, k.previous = make(map[position]chainEntry), k.recent
	}
	k.recent[at] = l
}
