package replica

import (
	"sort"

	"github.com/ashlar-dev/storage/driver/key"
)

// change is a step of the log.
type change[V any] struct {
	key     key.Key
	base    *Row[V] // before, in what the watch has brought; nil for nothing
	now     *Row[V] // after; nil for nothing
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

// changeLog is the newest changes, in chunks: a reader who holds on to one holds on to no more than that.
type changeLog[V any] struct {
	chunks []chunk[V] // only the last one grows
	first  int64      // the place of the first change of the first chunk
	end    int64      // the place of the next change
	bytes  int        // of all changes, and of all rows that they are about, each once
	most   int
	room   int
}

// chunk is a run of changes. What is in it never changes.
type chunk[V any] struct {
	first   int64 // the place of its first change
	changes []change[V]
	bytes   int // that came with it: of what older chunks have no bytes are counted
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
	return changeLog[V]{most: length, room: bytes}
}

// append puts a commit behind the others, and forgets the oldest chunks beyond the bounds.
func (l *changeLog[V]) append(commit []change[V]) {
	for i := range commit {
		c := &commit[i]
		c.more = i+1 < len(commit)
		last := len(l.chunks) - 1
		if last < 0 || len(l.chunks[last].changes) == chunkLength || l.chunks[last].bytes >= chunkBytes {
			l.chunks = append(l.chunks, chunk[V]{first: l.end, changes: make([]change[V], 0, chunkLength)})
			last++
		}
		l.chunks[last].changes = append(l.chunks[last].changes, *c)
		bytes := changeCost + c.base.kept(1) + c.now.kept(1)
		l.chunks[last].bytes += bytes
		l.bytes += bytes
		l.end++
	}
	for len(l.chunks) > 1 && (l.end-l.chunks[1].first > int64(l.most) || l.bytes > l.room) {
		for i := range l.chunks[0].changes {
			c := &l.chunks[0].changes[i]
			l.bytes -= changeCost + c.base.kept(-1) + c.now.kept(-1)
		}
		l.chunks[0] = chunk[V]{}
		l.chunks = l.chunks[1:]
		l.first = l.chunks[0].first
	}
}

// changeCost is about what a change takes beside its rows.
const changeCost = 200

// kept counts one use of a row by a log more, or less. It returns what the row takes, if the use is the only one.
func (r *Row[V]) kept(more int32) int {
	if r == nil {
		return 0
	}
	before := r.logged
	if r.logged += more; before != 0 && r.logged != 0 {
		return 0
	}
	return int(r.Weight)
}

// from returns changes from a place on, as many as are together; none if the place is that of the next change. false: they are forgotten.
func (l *changeLog[V]) from(at int64) ([]change[V], bool) {
	if at < l.first {
		return nil, false
	}
	if at == l.end {
		return nil, true
	}
	n := sort.Search(len(l.chunks), func(n int) bool { return l.chunks[n].first > at }) - 1
	return l.chunks[n].changes[at-l.chunks[n].first:], true
}

// touches reports whether there is a change of a key from a place on, or may have been one that is forgotten, and the place of the next
// change.
func (l *changeLog[V]) touches(k key.Key, at int64) (bool, int64) {
	for at < l.end {
		changes, ok := l.from(at)
		if !ok {
			return true, l.end
		}
		for i := range changes {
			if changes[i].key == k {
				return true, l.end
			}
		}
		at += int64(len(changes))
	}
	return false, l.end
}
