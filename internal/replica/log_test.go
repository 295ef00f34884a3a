package replica

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
)

// retainedBytes returns the size of all rows that a log retains.
func retainedBytes(l *changeLog[string]) (bytes int) {
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

// A log retains at most its capacity and one chunk, even if few rows are large, and if the replaced or deleted rows are large.
func TestLogBytes(t *testing.T) {
	t.Parallel()
	const large, capacity = 1 << 20, 8 << 20
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
			l := newLog[string](0, capacity)
			var last *Row[string]
			for i := range 1000 {
				c := next(i, last)
				last = c.after
				c.key = key.Key{Name: fmt.Sprint(i)}
				l.append([]change[string]{c})
				if bytes, limit := retainedBytes(&l), capacity+2*chunkBytes+2*large; bytes > limit {
					t.Fatalf("after %d changes the log retains %d bytes, expected at most %d", i, bytes, limit)
				}
			}
			if bytes := retainedBytes(&l); bytes < capacity/2 {
				t.Errorf("the log retains only %d bytes of %d", bytes, capacity)
			}
			p := logPosition[string]{chunk: l.chunks[0]}
			for at := l.chunks[0].first; at < l.end; at++ {
				if c, ok := p.next(); !ok || c == nil || c.key.Name != fmt.Sprint(at) {
					t.Fatalf("the change at %d is %v, %v", at, c, ok)
				}
			}
			if c, ok := p.next(); !ok || c != nil {
				t.Errorf("the change at the end is %v, %v", c, ok)
			}
			if touched, _ := l.touches(key.Key{}, l.chunks[0].first-1); !touched {
				t.Error("touches excludes a change that was forgotten")
			}
		})
	}
}

// Small changes fill a log up to its length and one chunk.
func TestLogLength(t *testing.T) {
	t.Parallel()
	l := newLog[string](1000, 0)
	for range 5000 {
		l.append([]change[string]{{after: &Row[string]{Weight: 1}}, {after: &Row[string]{Weight: 1}}})
	}
	if n := l.end - l.chunks[0].first; n < 1000 || n > 1000+2*chunkLength {
		t.Errorf("the log has %d changes, expected 1000 to %d", n, 1000+2*chunkLength)
	}
}

// A reader concurrent with the writer gets each change once and in order, or learns that some were forgotten. It retains one chunk.
func TestConcurrentLogReaders(t *testing.T) {
	t.Parallel()
	for name, log := range map[string]struct {
		capacity int
		weight   int32
	}{"all is kept": {}, "chunks are forgotten": {capacity: 300 * changeCost}, "a chunk for each": {1 << 40, chunkBytes}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := 100 * chunkLength
			if log.weight > 0 {
				n = 2000
			}
			l := newLog[string](n, log.capacity)
			start := l.endPosition()
			var readers sync.WaitGroup
			var lagging atomic.Int32
			for range 4 {
				readers.Go(func() {
					p := start
					for at := 0; at < n; {
						c, ok := p.next()
						switch {
						case !ok:
							lagging.Add(1)
							if p.chunk.next.Load() != nil {
								t.Error("a forgotten chunk refers to other chunks")
							}
							return
						case c == nil:
							runtime.Gosched()
						case c.key.Name != fmt.Sprint(at):
							t.Errorf("the change at %d is %s", at, c.key.Name)
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
				t.Errorf("a late reader can continue: %v, expected %v", ok, kept)
			}
			if kept && lagging.Load() > 0 {
				t.Errorf("%d of 4 readers fell behind a log that forgets nothing", lagging.Load())
			}
		})
	}
}
