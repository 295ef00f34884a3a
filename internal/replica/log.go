package replica

import (
	"sort"
	"sync/atomic"

	"github.com/ashlar-dev/storage/driver/key"
)

// change is a step of the log.
type change[V any] struct {
	key     key.Key
	before  *Row[V] // before, in what the watch has brought; nil for nothing
	after   *Row[V] // after; nil for nothing
	version string  // of now, or of what was deleted
	cursor  string
	settles bool // what own writes have laid over the key counts no more
	more    bool // the commit goes on
}

// The bounds of a log, unless the options say otherwise.
const (
	logLength = 65536
	logBytes  = 32 << 20
)

// changeLog is the newest changes, in chunks: a reader who holds on to one holds on to no more than that. The replica's lock guards it;
// readers need none for what is in a chunk.
type changeLog[V any] struct {
	chunks    []*chunk[V] // one at least; only the last one grows
	end       int64       // the place of the next change
	bytes     int         // of all changes, and of all rows that they are about, each once
	maxChunks int
	capacity  int
}

// chunk is a run of changes.
type chunk[V any] struct {
	first   int64 // the place of its first change
	changes [chunkLength]change[V]
	bytes   int // that came with it: of what older chunks have no bytes are counted

	length  atomic.Int32             // of the changes, those that are there. They never change
	next    atomic.Pointer[chunk[V]] // nil while this one grows, and once it is forgotten
	isStale atomic.Bool              // what comes after it is not reached from here any more
}

// A chunk ends when it has so many changes, or bytes.
const (
	chunkLength = 256
	chunkBytes  = 1 << 20
)

func newLog[V any](length, bytes int) changeLog[V] {
	if length == 0 {
		length = logLength
	}
	if bytes == 0 {
		bytes = logBytes
	}
	return changeLog[V]{chunks: []*chunk[V]{{}}, maxChunks: length, capacity: bytes}
}

// append puts a commit behind the others, and forgets the oldest chunks beyond the bounds.
func (l *changeLog[V]) append(commit []change[V]) {
	for i := range commit {
		c := &commit[i]
		c.more = i+1 < len(commit)
		last := l.last()
		n := last.length.Load()
		if n == chunkLength || last.bytes >= chunkBytes {
			next := &chunk[V]{first: l.end}
			l.chunks = append(l.chunks, next)
			last.next.Store(next)
			last, n = next, 0
		}
		bytes := changeCost + c.before.addUses(1) + c.after.addUses(1)
		last.bytes += bytes
		l.bytes += bytes
		l.end++
		last.changes[n] = *c
		last.length.Store(n + 1)
	}
	for len(l.chunks) > 1 && (l.end-l.chunks[1].first > int64(l.maxChunks) || l.bytes > l.capacity) {
		oldest := l.chunks[0]
		for i := range oldest.length.Load() {
			c := &oldest.changes[i]
			l.bytes -= changeCost + c.before.addUses(-1) + c.after.addUses(-1)
		}
		oldest.isStale.Store(true)
		oldest.next.Store(nil)
		l.chunks[0] = nil
		l.chunks = l.chunks[1:]
	}
}

// last returns the chunk that grows.
func (l *changeLog[V]) last() *chunk[V] { return l.chunks[len(l.chunks)-1] }

// logPosition is where a reader has come to in a log.
type logPosition[V any] struct {
	chunk *chunk[V]
	at    int32
}

// endPosition returns the place behind all changes.
func (l *changeLog[V]) endPosition() logPosition[V] {
	return logPosition[V]{l.last(), l.last().length.Load()}
}

// next returns the change at the place, which moves on; nil if there is none yet. false: it is forgotten.
func (p *logPosition[V]) next() (*change[V], bool) {
	for {
		if p.at < p.chunk.length.Load() {
			p.at++
			return &p.chunk.changes[p.at-1], true
		}
		switch next := p.chunk.next.Load(); {
		case next == nil:
			return nil, !p.chunk.isStale.Load()
		case p.at == p.chunk.length.Load(): // it has not grown before the other one began
			p.chunk, p.at = next, 0
		}
	}
}

// changeCost is about what a change takes beside its rows.
const changeCost = 200

// addUses counts one use of a row by a log more, or less. It returns what the row takes, if the use is the only one.
func (r *Row[V]) addUses(more int32) int {
	if r == nil {
		return 0
	}
	before := r.logUses
	if r.logUses += more; before != 0 && r.logUses != 0 {
		return 0
	}
	return int(r.Weight)
}

// touches reports whether there is a change of a key from a place on, or may have been one that is forgotten, and the place of the next
// change.
func (l *changeLog[V]) touches(k key.Key, at int64) (bool, int64) {
	if at < l.chunks[0].first {
		return true, l.end
	}
	n := sort.Search(len(l.chunks), func(n int) bool { return l.chunks[n].first > at }) - 1
	for _, c := range l.chunks[n:] {
		for i := max(0, at-c.first); i < int64(c.length.Load()); i++ {
			if c.changes[i].key == k {
				return true, l.end
			}
		}
	}
	return false, l.end
}
