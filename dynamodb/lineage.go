package dynamodb

import (
	"sync"
	"time"
)

// lineage is what is known of the shards of one stream: which descends from which. DynamoDB closes a shard every few hours, or when
// its partition splits, and goes on in one or more children. A child's records come after all of its parent's.
//
// A listing may leave out a shard, so lineage forgets none because of that: only what was in no listing for longer than a stream
// remembers is gone.
type lineage struct {
	mu     sync.RWMutex
	shards map[string]lineal
}

type lineal struct {
	parent string    // "" for none
	heard  time.Time // when it was last listed
}

// forgetAfter is twice as long as a stream remembers.
const forgetAfter = 2 * remembered

func newLineage() *lineage { return &lineage{shards: map[string]lineal{}} }

// update takes in a listing of the stream: the parent of each shard. Shards in keep are not forgotten.
func (l *lineage) update(parents map[string]string, keep *position) {
	now := time.Now()
	l.mu.Lock()
	defer l.mu.Unlock()
	for shard, parent := range parents {
		l.shards[shard] = lineal{parent, now}
	}
	for shard, s := range l.shards {
		if _, kept := keep.get(shard); !kept && now.Sub(s.heard) > forgetAfter {
			delete(l.shards, shard)
		}
	}
}

// orphan notes that a shard's parent does not exist any more.
func (l *lineage) orphan(shard string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.shards[shard]
	s.parent = ""
	l.shards[shard] = s
}

func (l *lineage) knows(shard string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, ok := l.shards[shard]
	return ok
}

func (l *lineage) parentOf(shard string) string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.shards[shard].parent
}

// hasChild reports whether a child of the shard is known.
func (l *lineage) hasChild(shard string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, s := range l.shards {
		if s.parent == shard {
			return true
		}
	}
	return false
}

// handedOn reports whether all known children of the shard are in p, or come before one that is: who is at p goes on there. A shard
// without a known child is not.
func (l *lineage) handedOn(shard string, p *position) (handedOn bool) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	before := l.before(p)
	for child, s := range l.shards {
		if s.parent != shard {
			continue
		}
		if _, there := p.get(child); !there && !before[child] {
			return false
		}
		handedOn = true
	}
	return handedOn
}

// precedes reports whether shard is a forebear of a shard in p.
func (l *lineage) precedes(shard string, p *position) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.before(p)[shard]
}

// follows reports whether shard descends from a shard in p.
func (l *lineage) follows(shard string, p *position) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for s := l.shards[shard].parent; s != ""; s = l.shards[s].parent {
		if _, there := p.get(s); there {
			return true
		}
	}
	return false
}

// before returns all forebears of the shards in p. The caller holds mu.
func (l *lineage) before(p *position) map[string]bool {
	before := map[string]bool{}
	for _, pl := range p.shards {
		for s := l.shards[pl.shard].parent; s != "" && !before[s]; s = l.shards[s].parent {
			before[s] = true
		}
	}
	return before
}

// heirs returns the shards that a reader at p goes on with: children, unread themselves, whose parent is read to its end; and
// roots, unread and without a parent. unlisted are the parents, by child, that keep a shard from being either because no listing
// has shown them: they are gone, or were left out.
func (l *lineage) heirs(p *position) (children, roots []string, unlisted map[string]string) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	before := l.before(p)
	unlisted = map[string]string{}
	for shard, s := range l.shards {
		if _, there := p.get(shard); there || before[shard] {
			continue
		}
		seq, there := p.get(s.parent)
		_, known := l.shards[s.parent]
		switch {
		case s.parent == "":
			roots = append(roots, shard)
		case there && seq == ended, !there && before[s.parent]:
			children = append(children, shard)
		case !there && !known:
			unlisted[shard] = s.parent
		}
	}
	return children, roots, unlisted
}

// prune drops from p the shards that are read to their end and no longer needed: all of their known children are at their end as
// well, or they are gone from the stream.
func (l *lineage) prune(p *position) *position {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, pl := range p.shards {
		if pl.seq != ended || len(p.shards) == 1 {
			continue
		}
		children, open := 0, 0
		before := l.before(p)
		for shard, s := range l.shards {
			if s.parent != pl.shard {
				continue
			}
			children++
			if seq, in := p.get(shard); seq != ended && (in || !before[shard]) {
				open++
			}
		}
		_, known := l.shards[pl.shard]
		if !known || children > 0 && open == 0 {
			p = p.without(pl.shard)
		}
	}
	return p
}
