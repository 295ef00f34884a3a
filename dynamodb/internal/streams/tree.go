package streams

import (
	"slices"
	"strings"
	"sync"
	"time"
)

// tree contains the known shards of one stream and their parents.
//
// A listing may omit a shard, so an omission does not remove it from the tree. Only a shard that was in no listing for longer than
// the retention of a stream has been deleted.
type tree struct {
	mu      sync.RWMutex
	shards  map[string]node
	changes uint64 // number of changes of a shard or its parent
}

type node struct {
	parent     string    // "" for none
	lastListed time.Time // time of the last listing with the shard
}

// remembered is how long DynamoDB keeps the records of a stream, forgetAfter how long the tree keeps a shard that is not listed.
const (
	shardMemory = 24 * time.Hour
	forgetAfter = 2 * shardMemory
)

func newTree() *tree { return &tree{shards: map[string]node{}} }

// update applies a listing of the stream: the parent of each shard. Shards in keep stay in the tree.
func (t *tree) update(parents map[string]string, keep *Position) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	for shard, parent := range parents {
		if n, known := t.shards[shard]; !known || n.parent != parent {
			t.changes++
		}
		t.shards[shard] = node{parent, now}
	}
	for shard, n := range t.shards {
		if _, kept := keep.get(shard); !kept && now.Sub(n.lastListed) > forgetAfter {
			delete(t.shards, shard)
		}
	}
}

// orphan records that a shard's parent does not exist any more.
func (t *tree) orphan(shard string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.shards[shard]
	n.parent = ""
	t.shards[shard] = n
	t.changes++
}

// parents returns the parent of each shard, and the number of changes.
func (t *tree) parents() (parents map[string]string, changes uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	parents = make(map[string]string, len(t.shards))
	for shard, n := range t.shards {
		parents[shard] = n.parent
	}
	return parents, t.changes
}

// changeCount returns the number of changes.
func (t *tree) changeCount() uint64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.changes
}

// includes reports whether p is known to contain every record that from contains, and is not before it in any shard. The number of a record
// is not comparable with a time. A position at the beginning of a shard contains the shard's ancestors.
func (t *tree) includes(p, from *Position) bool {
	for _, pl := range from.shards {
		seq, there := p.get(pl.shard)
		switch {
		case there && (seq == pl.seq || isFurther(seq, pl.seq) && (rank(pl.seq) != 1 || seq == shardEnd)), there && pl.seq == "":
		case !there && (t.precedes(pl.shard, p) || pl.seq == "" && t.containsParent(p, pl.shard)):
		default:
			return false
		}
	}
	return true
}

// containsParent reports whether p is known to contain all records of the shard's ancestors.
func (t *tree) containsParent(p *Position, shard string) bool {
	parent := t.parentOf(shard)
	if seq, there := p.get(parent); there {
		return seq == shardEnd
	}
	return parent == "" || t.precedes(parent, p)
}

func (t *tree) knows(shard string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	_, ok := t.shards[shard]
	return ok
}

func (t *tree) parentOf(shard string) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.shards[shard].parent
}

// hasChild reports whether a child of the shard is known.
func (t *tree) hasChild(shard string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, n := range t.shards {
		if n.parent == shard {
			return true
		}
	}
	return false
}

// childrenKnown reports whether all known children of the shard are in p, or precede one that is: a reader at p continues there. It
// returns false for a shard without a known child.
func (t *tree) childrenKnown(shard string, p *Position) (continued bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	before := t.before(p)
	for child, n := range t.shards {
		if n.parent != shard {
			continue
		}
		if _, there := p.get(child); !there && !before[child] {
			return false
		}
		continued = true
	}
	return continued
}

// precedes reports whether shard is an ancestor of a shard in p.
func (t *tree) precedes(shard string, p *Position) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.before(p)[shard]
}

// follows reports whether a reader at p reads the shard, which is not in p and no ancestor of a shard in p, from its beginning: it descends
// from a shard in p, or from an ancestor of one.
func (t *tree) follows(shard string, p *Position) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	before := t.before(p)
	for s := t.shards[shard].parent; s != ""; s = t.shards[s].parent {
		if _, there := p.get(s); there || before[s] {
			return true
		}
	}
	return false
}

// before returns all ancestors of the shards in p. The caller holds mu.
func (t *tree) before(p *Position) map[string]bool {
	before := map[string]bool{}
	for _, pl := range p.shards {
		for s := t.shards[pl.shard].parent; s != "" && !before[s]; s = t.shards[s].parent {
			before[s] = true
		}
	}
	return before
}

// ready returns the unread shards that a reader at p may start: children whose parent is read to its end, and roots, which have no
// parent. unlisted contains the parents, by child, that prevent both because no listing has contained them: they were deleted, or
// omitted.
func (t *tree) ready(p *Position) (children, roots []string, unlisted map[string]string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	before := t.before(p)
	unlisted = map[string]string{}
	for shard, n := range t.shards {
		if _, there := p.get(shard); there || before[shard] {
			continue
		}
		seq, there := p.get(n.parent)
		_, known := t.shards[n.parent]
		switch {
		case n.parent == "":
			roots = append(roots, shard)
		case there && seq == shardEnd, !there && before[n.parent]:
			children = append(children, shard)
		case !there && !known:
			unlisted[shard] = n.parent
		}
	}
	return children, roots, unlisted
}

// prune removes from p the shards that are read to their end and no longer needed: all of their known children are at their end as
// well, or they were deleted from the stream.
func (t *tree) prune(p *Position) *Position {
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, pl := range p.shards {
		if pl.seq != shardEnd || len(p.shards) == 1 {
			continue
		}
		children, open := 0, 0
		before := t.before(p)
		for shard, n := range t.shards {
			if n.parent != pl.shard {
				continue
			}
			children++
			if seq, in := p.get(shard); seq != shardEnd && (in || !before[shard]) {
				open++
			}
		}
		_, known := t.shards[pl.shard]
		if !known || children > 0 && open == 0 {
			p = p.without(pl.shard)
		}
	}
	return p
}

// covers reports whether p contains the record of an event.
func (t *tree) covers(p, ev *Position) bool {
	at, there := p.get(ev.shard)
	if !there {
		return t.precedes(ev.shard, p)
	}
	if from, timed := sinceTime(at); timed {
		return ev.creationTime.Before(from)
	}
	return at == shardEnd || isRecordNumber(at) && compareSeq(ev.seq, at) <= 0
}

// merge returns the union of two positions. The reader's time in a shard is no progress of p: p may be before older records, which the
// reader reads when it begins at the shard's beginning again.
func (t *tree) merge(p, o *Position) *Position {
	if o.shard != "" {
		o = o.with(o.shard, o.seq)
	}
	q := *p
	q.shard, q.seq = "", ""
	if o.asOf.After(p.asOf) {
		q.asOf = o.asOf
	}
	if p.within(o) {
		q.shards = o.shards
		return &q
	}
	q.shards = make([]shardPosition, 0, max(len(p.shards), len(o.shards)))
	for _, a := range p.shards {
		switch b, there := o.get(a.shard); {
		case there && isFurther(b, a.seq):
			q.shards = append(q.shards, shardPosition{a.shard, b})
		case there, !t.precedes(a.shard, o) && (a.seq != shardEnd || t.knows(a.shard)):
			q.shards = append(q.shards, a)
		}
	}
	for _, b := range o.shards {
		if _, there := p.get(b.shard); !there && !t.precedes(b.shard, p) {
			q.shards = append(q.shards, b)
		}
	}
	slices.SortFunc(q.shards, func(a, b shardPosition) int { return strings.Compare(a.shard, b.shard) })
	return &q
}
