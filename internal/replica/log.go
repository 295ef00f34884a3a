package replica

import (
	"sort"
	"sync/atomic"

	"github.com/ashlar-dev/storage/driver/key"
)

// change is a change in the log.
type change[V any] struct {
	key     key.Key
	before  *Row[V] // row before the change, without local writes; nil for none
	after   *Row[V] // row after the change; nil for none
	version string  // version of after, or the deleted version
	cursor  string
	settles bool // the overlay of a local write of the key has ended
	more    bool // the next change belongs to the same commit
}

// The default bounds of a log.
const (
	logLength = 65536
	logBytes  = 32 << 20
)

// changeLog holds the latest changes in chunks. A reader retains at most one forgotten chunk. The replica's lock guards the log; readers access the
// changes of a chunk without it.
type changeLog[V any] struct {
	chunks    []*chunk[V] // at least one; only the last one grows
	end       int64       // position of the next change
	bytes     int         // size of all changes and of their rows, each row counted once
	maxChunks int
	capacity  int
}

// chunk is a sequence of changes.
type chunk[V any] struct {
	first   int64 // position of the first change
	changes [chunkLength]change[V]
	bytes   int // size of its changes, and of their rows that no older chunk has

	length  atomic.Int32             // number of changes; those never change
	next    atomic.Pointer[chunk[V]] // nil while this chunk grows, and after it was forgotten
	isStale atomic.Bool              // the chunk was forgotten, and next is lost
}

// The maximum number of changes and of bytes of a chunk.
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

// append appends a commit, and forgets the oldest chunks beyond the bounds.
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

// logPosition is the position of a reader in a log.
type logPosition[V any] struct {
	chunk *chunk[V]
	at    int32
}

// endPosition returns the position behind all changes.
func (l *changeLog[V]) endPosition() logPosition[V] {
	return logPosition[V]{l.last(), l.last().length.Load()}
}

// next returns the change at the position and advances it. It returns nil if there is none yet, and false if the change was forgotten.
func (p *logPosition[V]) next() (*change[V], bool) {
	for {
		if p.at < p.chunk.length.Load() {
			p.at++
			return &p.chunk.changes[p.at-1], true
		}
		switch next := p.chunk.next.Load(); {
		case next == nil:
			return nil, !p.chunk.isStale.Load()
		case p.at == p.chunk.length.Load(): // the chunk did not grow before its successor began
			p.chunk, p.at = next, 0
		}
	}
}

// changeCost is the approximate size of a change without its rows.
const changeCost = 200

// addUses adds to the number of uses of a row by the log. It returns the row's size if the first use begins or the last one ends, and 0 otherwise.
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

// touches reports whether the log has a change of a key from a position on, or may have forgotten one. It also returns the end of the log.
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
