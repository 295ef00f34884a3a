package replica

import (
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
)

// held returns the bytes of all rows that a log holds on to.
func held(l *changeLog[string]) (bytes int) {
	rows := map[*Row[string]]bool{nil: true}
	for _, c := range l.chunks {
		for _, one := range c.changes {
			for _, row := range []*Row[string]{one.base, one.now} {
				if !rows[row] {
					bytes += int(row.Weight)
				}
				rows[row] = true
			}
		}
	}
	return bytes
}

// A log holds no more bytes than it has room for, and one chunk beyond: also if few rows are large, and if they are large that are
// replaced or deleted.
func TestLogHoldsNoMoreThanItHasRoomFor(t *testing.T) {
	t.Parallel()
	const large, room = 1 << 20, 8 << 20
	for name, next := range map[string]func(i int, last *Row[string]) change[string]{
		"created": func(_ int, _ *Row[string]) change[string] {
			return change[string]{now: &Row[string]{Weight: large}}
		},
		"deleted": func(_ int, _ *Row[string]) change[string] {
			return change[string]{base: &Row[string]{Weight: large}}
		},
		"made small": func(_ int, _ *Row[string]) change[string] {
			return change[string]{base: &Row[string]{Weight: large}, now: &Row[string]{Weight: 1}}
		},
		"replaced": func(_ int, last *Row[string]) change[string] {
			return change[string]{base: last, now: &Row[string]{Weight: large}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLog[string](0, room)
			var last *Row[string]
			for i := range 1000 {
				c := next(i, last)
				last = c.now
				c.key = key.Key{Name: fmt.Sprint(i)}
				l.append([]change[string]{c})
				if bytes := held(&l); bytes > room+2*chunkBytes+2*large {
					t.Fatalf("after %d changes: %d bytes, %d are the most", i, bytes, room)
				}
			}
			if bytes := held(&l); bytes < room/2 {
				t.Errorf("only %d bytes are used of %d", bytes, room)
			}
			for at := l.first; at < l.end; at++ {
				if changes, ok := l.from(at); !ok || len(changes) == 0 || changes[0].key.Name != fmt.Sprint(at) {
					t.Fatalf("from %d there are %v, %v", at, changes, ok)
				}
			}
			if changes, ok := l.from(l.end); !ok || len(changes) != 0 {
				t.Errorf("from the end there are %v, %v", changes, ok)
			}
			if _, ok := l.from(l.first - 1); ok {
				t.Error("what was forgotten is there")
			}
		})
	}
}

// Small changes fill the length of a log, and one chunk beyond.
func TestLogLength(t *testing.T) {
	t.Parallel()
	l := newLog[string](1000, 0)
	for range 5000 {
		l.append([]change[string]{{now: &Row[string]{Weight: 1}}, {now: &Row[string]{Weight: 1}}})
	}
	if n := l.end - l.first; n < 1000 || n > 1000+2*chunkLength {
		t.Errorf("%d changes are kept, 1000 are wanted", n)
	}
}
