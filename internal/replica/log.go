package replica

import "github.com/ashlar-dev/storage/driver/key"

// change is a step of the log.
type change[V any] struct {
	key     key.Key
	base    *Row[V] // before, in what the watch has brought; nil for nothing
	now     *Row[V] // after; nil for nothing
	version string  // of now, or of what was deleted
	cursor  string
	size    int
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
	bytes  int
	most   int
	room   int
}

// chunk is a run of changes. What is in it never changes.
type chunk[V any] struct {
	changes []change[V]
	bytes   int
}

// chunkLength is how many changes a chunk has.
const chunkLength = 256

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
		if last < 0 || len(l.chunks[last].changes) == chunkLength {
			l.chunks = append(l.chunks, chunk[V]{changes: make([]change[V], 0, chunkLength)})
			last++
		}
		l.chunks[last].changes = append(l.chunks[last].changes, *c)
		l.chunks[last].bytes += c.size
		l.bytes += c.size
		l.end++
	}
	for len(l.chunks) > 1 && (l.end-l.first-chunkLength > int64(l.most) || l.bytes > l.room) {
		l.bytes -= l.chunks[0].bytes
		l.first += int64(len(l.chunks[0].changes))
		l.chunks[0] = chunk[V]{}
		l.chunks = l.chunks[1:]
	}
}

// from returns changes from a place on, as many as are together; none if the place is that of the next change. false: they are forgotten.
func (l *changeLog[V]) from(at int64) ([]change[V], bool) {
	if at < l.first {
		return nil, false
	}
	skip := at - l.first // all chunks but the last are full
	if n := int(skip / chunkLength); n < len(l.chunks) {
		return l.chunks[n].changes[skip%chunkLength:], true
	}
	return nil, true
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
