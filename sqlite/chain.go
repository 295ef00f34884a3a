package sqlite

// History is in the log. Every row names the row before it of the same resource (prev), so that the rows of one life of a resource,
// from its creation to its deletion, form a chain that begins at its row in resources, or at one in gone if it was deleted. Nothing
// else is written for history: an index of the log by key would touch another page for each change, which cost a third of the
// writes per second where resources are small.
//
//	resources ──► log 90 ─prev─► log 71 ─prev─► log 12 (created)
//	gone      ──► log 55 (deletion) ─prev─► log 31 ─prev─► log 30 (created)
//
// The log holds all rows above the horizon, and of each resource that was stored at the horizon the newest row before. So the state
// of a resource at a row N >= horizon is found by going along a chain to its first row that is not above N, and that row is there.
//
// A resource that is written all the time has a long chain. Rows therefore also name an older one (jump): the newest whose count is
// divisible by 32 or, where the row's own count is, by 1024.
const (
	stepEvery = 32
	leapEvery = 1024
)

// chainEntry is where the chain of a resource goes on: its newest row with what stands in resources about it.
type chainEntry struct {
	seq, createRevision, writes int64
	step, leap                  int64
}

// next returns the link of the row that comes next, and that row's jump.
func (l chainEntry) next(seq int64) (n chainEntry, jump int64) {
	if l.seq == 0 {
		return chainEntry{seq: seq, createRevision: seq, writes: 1}, 0
	}
	n = chainEntry{seq, l.createRevision, l.writes + 1, l.step, l.leap}
	jump = l.step
	if n.writes%stepEvery == 0 {
		jump, n.step = l.leap, seq
	}
	if n.writes%leapEvery == 0 {
		n.leap = seq
	}
	return n, jump
}

// rowAt goes rowAt a chain from a row above another one to the first that is not, which may be 0: before the resource was created.
func (c *conn) rowAt(from, above int64) (int64, error) {
	s, err := c.stmt(chain)
	if err != nil {
		return 0, err
	}
	for from > above {
		if err := s.BindInt64(1, from); err != nil {
			return 0, err
		}
		there := s.Step()
		prev, jump := s.ColumnInt64(0), s.ColumnInt64(1)
		if err := finish(s); err != nil {
			return 0, err
		}
		if !there {
			return 0, errMissingRow
		}
		if from = prev; jump > above {
			from = jump
		}
	}
	return from, nil
}

// chainCache remembers the chainCache of what was written last, by its version, so that most writes need not look them up. What is remembered of
// a transaction that failed is never asked for: nobody has its versions.
type chainCache struct{ recent, previous map[position]chainEntry }

// chainCacheSize is the number of links in a generation, of which there are two: about 5 MB of memory in a process that writes as many keys.
const chainCacheSize = 32 << 10

func (k *chainCache) get(at position) (chainEntry, bool) {
	l, ok := k.recent[at]
	if !ok {
		l, ok = k.previous[at]
	}
	return l, ok
}

// replace remembers a link in the place of that of an older version.
func (k *chainCache) replace(old, at position, l chainEntry) {
	delete(k.recent, old)
	if k.recent == nil || len(k.recent) >= chainCacheSize {
		k.recent, k.previous = make(map[position]chainEntry), k.recent
	}
	k.recent[at] = l
}
