package controllers

import (
	"flag"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var (
	objects = flag.Int("objects", 100_000, "the number of objects")
	rounds  = flag.Int("rounds", 5, "the number of turns of each side")
)

func name(i int) string { return fmt.Sprintf("thing-%06d", i) }

// payload returns 300 bytes that differ by object.
func payload(i int) string { return strings.Repeat(fmt.Sprintf("%010d", i), 30) }

// side is one of two compared implementations.
type side interface {
	// run starts a controller of all objects that decodes each and does nothing. touch changes an object.
	run(b *testing.B, reconciled func()) (touch func(i int), stop func())
}

// turn is the result of one turn of a side.
type turn struct {
	primed, reconciled       float64 // seconds until the first reconcile, and from the first to the last
	primedCPU, reconciledCPU float64 // processor seconds in these times, which other programs on the machine do not change
	event                    float64 // seconds from a change to its reconcile
	bytes                    float64 // growth of the heap for an object
}

// BenchmarkControllers measures both sides in turns.
func BenchmarkControllers(b *testing.B) {
	if b.N > 1 {
		b.Skip("the comparison takes its own time: run with -benchtime=1x")
	}
	sides := map[string]side{"ashlar": newOurs(b), "controller-runtime": newPeer(b)}
	results := map[string][]turn{}
	for range *rounds {
		for name, s := range sides {
			results[name] = append(results[name], takeTurn(b, s))
		}
	}
	report := func(what, unit string, scale float64, of func(turn) float64) {
		values := map[string]float64{}
		for name, turns := range results {
			values[name] = median(turns, of) * scale
		}
		fmt.Printf("%-28s ashlar %10.2f %s   controller-runtime %10.2f %s\n", what, values["ashlar"], unit, values["controller-runtime"], unit)
		fmt.Printf("ratio controllers/%s %.2f\n", what, values["controller-runtime"]/values["ashlar"])
	}
	report("prime", "s", 1, func(t turn) float64 { return t.primed })
	report("reconcile-all", "s", 1, func(t turn) float64 { return t.reconciled })
	report("prime-cpu", "s", 1, func(t turn) float64 { return t.primedCPU })
	report("reconcile-all-cpu", "s", 1, func(t turn) float64 { return t.reconciledCPU })
	report("event", "µs", 1e6, func(t turn) float64 { return t.event })
	report("memory", "B", 1, func(t turn) float64 { return t.bytes })
}

func median(turns []turn, of func(turn) float64) float64 {
	var all []float64
	for _, t := range turns {
		all = append(all, of(t))
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// cpu returns the processor time of this process in nanoseconds.
func cpu() int64 {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return usage.Utime.Nano() + usage.Stime.Nano()
}

// takeTurn runs a side once.
func takeTurn(b *testing.B, s side) (t turn) {
	before := heap()
	n := int64(*objects)
	var count, first, last, firstCPU, lastCPU atomic.Int64
	done, hit := make(chan struct{}), make(chan time.Time, 1)
	began, beganCPU := time.Now(), cpu()
	touch, stop := s.run(b, func() {
		switch c := count.Add(1); {
		case c == 1:
			first.Store(int64(time.Since(began)))
			firstCPU.Store(cpu())
		case c == n:
			last.Store(int64(time.Since(began)))
			lastCPU.Store(cpu())
			close(done)
		case c > n:
			hit <- time.Now()
		}
	})
	<-done
	t.primed, t.reconciled = float64(first.Load())/1e9, float64(last.Load()-first.Load())/1e9
	t.primedCPU, t.reconciledCPU = float64(firstCPU.Load()-beganCPU)/1e9, float64(lastCPU.Load()-firstCPU.Load())/1e9
	t.bytes = (heap() - before) / float64(n)
	var events []float64
	for i := range 1000 {
		at := time.Now()
		touch(i)
		events = append(events, (<-hit).Sub(at).Seconds())
	}
	slices.Sort(events)
	t.event = events[len(events)/2]
	stop()
	return t
}
