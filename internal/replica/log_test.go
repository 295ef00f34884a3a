package replica

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
)

// held returns the bytes of all rows that a log holds on to.
func held(l *changeLog[string]) (bytes int) {
	rows := map[*Row[string]]bool{nil: true}
	for _, c := range l.chunks {
		for _, one := range c.changes[:c.length.Load()] {
			for _, row := range []*Row[string]{one.before, one.after} {
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
			return change[string]{after: &Row[string]{Weight: large}}
		},
		"deleted": func(_ int, _ *Row[string]) change[string] {
			return change[string]{before: &Row[string]{Weight: large}}
		},
		"made small": func(_ int, _ *Row[string]) change[string] {
			return change[string]{before: &Row[string]{Weight: large}, after: &Row[string]{Weight: 1}}
		},
		"replaced": func(_ int, last *Row[string]) change[string] {
			return change[string]{before: last, after: &Row[string]{Weight: large}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLog[string](0, room)
			var last *Row[string]
			for i := range 1000 {
				c := next(i, last)
				last = c.after
				c.key = key.Key{Name: fmt.Sprint(i)}
				l.append([]change[string]{c})
				if bytes := held(&l); bytes > room+2*chunkBytes+2*large {
					t.Fatalf("after %d changes: %d bytes, %d are the most", i, bytes, room)
				}
			}
			if bytes := held(&l); bytes < room/2 {
				t.Errorf("only %d bytes are used of %d", bytes, room)
			}
			p := logPosition[string]{chunk: l.chunks[0]}
			for at := l.chunks[0].first; at < l.end; at++ {
				if c, ok := p.next(); !ok || c == nil || c.key.Name != fmt.Sprint(at) {
					t.Fatalf("at %d there is %v, %v", at, c, ok)
				}
			}
			if c, ok := p.next(); !ok || c != nil {
				t.Errorf("at the end there is %v, %v", c, ok)
			}
			if touched, _ := l.touches(key.Key{}, l.chunks[0].first-1); !touched {
				t.Error("what was forgotten is known")
			}
		})
	}
}

// Small changes fill the length of a log, and one chunk beyond.
func TestLogLength(t *testing.T) {
	t.Parallel()
	l := newLog[string](1000, 0)
	for range 5000 {
		l.append([]change[string]{{after: &Row[string]{Weight: 1}}, {after: &Row[string]{Weight: 1}}})
	}
	if n := l.end - l.chunks[0].first; n < 1000 || n > 1000+2*chunkLength {
		t.Errorf("%d changes are kept, 1000 are wanted", n)
	}
}

// A reader beside the writer sees each change once and in order, or is told that some are forgotten. It holds on to one chunk.
func TestLogIsReadWhileItGrows(t *testing.T) {
	t.Parallel()
	for name, log := range map[string]struct {
		room   int
		weight int32
	}{"all is kept": {}, "chunks are forgotten": {room: 300 * changeCost}, "a chunk for each": {1 << 40, chunkBytes}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 100 * chunkLength
			if log.weight > 0 {
				n = 2000
			}
			l := newLog[string](n, log.room)
			start := l.endPosition()
			var readers sync.WaitGroup
			var fell atomic.Int32
			for range 4 {
				readers.Go(func() {
					p := start
					for at := 0; at < n; {
						c, ok := p.next()
						switch {
						case !ok:
							fell.Add(1)
							if p.chunk.next.Load() != nil {
								t.Error("a chunk that is forgotten leads to others")
							}
							return
						case c == nil:
							runtime.Gosched()
						case c.key.Name != fmt.Sprint(at):
							t.Errorf("at %d there is %s", at, c.key.Name)
							return
						default:
							at++
						}
					}
				})
			}
			for i := range n {
				l.append([]change[string]{{key: key.Key{Name: fmt.Sprint(i)}, after: &Row[string]{Weight: log.weight}}})
			}
			readers.Wait()
			late := start
			c, ok := late.next()
			for c != nil {
				c, ok = late.next()
			}
			kept := name != "chunks are forgotten"
			if ok != kept {
				t.Errorf("a reader who comes last may go on: %v", ok)
			}
			if kept && fell.Load() > 0 {
				t.Errorf("%d of 4 readers fell behind a log that keeps all", fell.Load())
			}
		})
	}
}
