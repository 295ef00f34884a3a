package dynamodb

import "sync"

// lineage is what is known of the shards of one stream: who descends from whom. DynamoDB closes a shard every few hours, or when
// its partition splits, and goes on in one or more children. A child's records come after all of its parent's.
type lineage struct {
	mu     sync.RWMutex
	parent map[string]string // of every shard listed, "" for none
}

func newLineage() *lineage { return &lineage{parent: map[string]string{}} }

// update takes in a listing of the stream. Shards that are in no listing any more are forgotten, but for those in keep.
func (l *lineage) update(parents map[string]string, keep *position) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for shard, parent := range l.parent {
		_, listed := parents[shard]
		if _, kept := keep.get(shard); !listed && kept {
			parents[shard] = parent
		}
	}
	l.parent = parents
}

func (l *lineage) knows(shard string) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	_, ok := l.parent[shard]
	return ok
}

// precedes tells whether shard is a forebear of a shard in p.
func (l *lineage) precedes(shard string, p *position) bool {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for _, pl := range p.shards {
		for s := l.parent[pl.shard]; s != ""; s = l.parent[s] {
			if s == shard {
				return true
			}
		}
	}
	return false
}

// heirs returns the shards that a reader at p may start reading from their beginning: those that descend from shards it has read
// to their end, or from nobody that is known, and that are neither in p nor before anything in it. Parents come before children:
// a shard is no heir before its parent is read.
func (l *lineage) heirs(p *position) []string {
	l.mu.RLock()
	all := make(map[string]string, len(l.parent))
	for s, parent := range l.parent {
		all[s] = parent
	}
	l.mu.RUnlock()
	before := map[string]bool{}
	for _, pl := range p.shards {
		for s := all[pl.shard]; s != "" && !before[s]; s = all[s] {
			before[s] = true
		}
	}
	var heirs []string
	for s, parent := range all {
		if _, there := p.get(s); there || before[s] {
			continue
		}
		seq, there := p.get(parent)
		_, listed := all[parent]
		if there && seq == ended || !there && (parent == "" || !listed || before[parent]) {
			heirs = append(heirs, s)
		}
	}
	return heirs
}

// prune drops from p the shards that are read to their end and no longer needed: those that DynamoDB has forgotten, and those
// all of whose children are at their end as well.
func (l *lineage) prune(p *position, listed map[string]string) *position {
	for _, pl := range p.shards {
		if pl.seq != ended {
			continue
		}
		_, there := listed[pl.shard]
		children, open := 0, 0
		for s, parent := range listed {
			if parent == pl.shard {
				children++
				if seq, in := p.get(s); !in || seq != ended {
					open++
				}
			}
		}
		if (!there || children > 0 && open == 0) && len(p.shards) > 1 {
			p = p.without(pl.shard)
		}
	}
	return p
}
