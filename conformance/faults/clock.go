package faults

import (
	"context"
	"fmt"
	"math"
	"runtime/metrics"
	"strings"
	"sync"
	"time"
)

// clock measures the time since the start of a run and the lateness of the machine, as the delay of its own timers. This lateness
// does not count against the backend. The clock also samples memory and goroutines.
type clock struct {
	start time.Time

	mu         sync.Mutex
	lateness   []lateness
	heap       uint64
	goroutines uint64
}

type lateness struct{ at, by time.Duration }

const tick = 50 * time.Millisecond

func (c *clock) now() time.Duration { return time.Since(c.start) }

// run measures at every tick until ctx ends.
func (c *clock) run(ctx context.Context) {
	samples := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}, {Name: "/sched/goroutines:goroutines"}}
	for ctx.Err() == nil {
		before := c.now()
		pause(ctx, tick)
		late := c.now() - before - tick
		metrics.Read(samples)
		c.mu.Lock()
		if late > tick {
			c.lateness = append(c.lateness, lateness{c.now(), late})
		}
		c.heap, c.goroutines = max(c.heap, samples[0].Value.Uint64()), max(c.goroutines, samples[1].Value.Uint64())
		c.mu.Unlock()
	}
}

// latenessBetween returns the sum of the machine's delays between two moments.
func (c *clock) latenessBetween(begin, end time.Duration) (sum time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lateness {
		if l.at >= begin && l.at-l.by <= end {
			sum += l.by
		}
	}
	return sum
}

// peakUsage returns the maximum size of the heap and the maximum number of goroutines.
func (c *clock) peakUsage() (heap, goroutines uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heap, c.goroutines
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func shortKey(key string) string { return strings.TrimPrefix(key, "faulty-") }

func formatTime(d time.Duration) string {
	if d == forever {
		return "?"
	}
	return fmt.Sprintf("%.6fs", d.Seconds())
}

// joinLines formats values as lines under a heading.
func joinLines[T fmt.Stringer](heading string, all []T) string {
	var s strings.Builder
	s.WriteString(heading)
	for _, line := range all {
		fmt.Fprintf(&s, "\n    %s", line)
	}
	return s.String()
}

// forever is the end of a call that has not ended.
const forever = time.Duration(math.MaxInt64)
