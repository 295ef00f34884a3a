package bench

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

var (
	turn   = flag.Duration("turn", time.Second, "the duration of a turn of each side")
	rounds = flag.Int("rounds", 5, "the number of turns of each side")
	only   = flag.String("only", "", "a regular expression: measure only matching comparisons, such as postgres/write-500")
	smoke  = flag.Bool("smoke", false, "small stores, few callers and short turns: checks that every comparison runs")
)

// scaled returns n, or a hundredth of it in a smoke test.
func scaled(n int) int {
	if *smoke {
		return max(1, n/100)
	}
	return n
}

// maxCallers returns the largest number of callers in a comparison.
func maxCallers() int {
	if *smoke {
		return 16
	}
	return 256
}

// repetitions returns the number of turns of each side in a measurement.
func repetitions() int {
	if *smoke {
		return 1
	}
	return *rounds
}

// observation returns the time for which a benchmark observes a rate: d, or a hundredth of it in a smoke test.
func observation(d time.Duration) time.Duration {
	if *smoke {
		return d / 100
	}
	return d
}

// side is one of two compared implementations. op does one operation; caller is the number of the goroutine, i of the operation.
type side struct {
	name string
	op   func(caller, i int) error
}

// outcome is the result of one turn.
type outcome struct {
	rate      float64 // operations a second
	latencies []time.Duration
	client    time.Duration // CPU time of this process, all operations together
	server    time.Duration // CPU time of the server
}

// comparison is what one line of results compares.
type comparison struct {
	backend, what string
	callers       []int
	server        func() time.Duration // the CPU time that the server has used; nil: not reported
	before        int                  // callers of an unmeasured turn before each turn, in the same sessions; 0: none
	settle        map[string]func()    // by name of a side: blocks until the later effects of its operations have ended, which belong to the turn
}

// selected reports whether the flag -only selects a comparison.
func selected(name string) bool { return regexp.MustCompile(*only).MatchString(name) }

// compare runs raw and ours in turns at each number of callers and prints the results.
func compare(b *testing.B, backend, what string, callers []int, raw, ours side) {
	b.Helper()
	comparison{backend: backend, what: what, callers: callers}.run(b, raw, ours)
}

func (c comparison) run(b *testing.B, raw, ours side) {
	b.Helper()
	for _, n := range c.callers {
		name := fmt.Sprintf("%s/%s/%d", c.backend, c.what, n)
		if n > maxCallers() || !selected(name) {
			continue
		}
		var rates, p99s, cpus []float64
		all := map[string]*outcome{raw.name: {}, ours.name: {}}
		for range repetitions() {
			r, o := c.turn(b, raw, n), c.turn(b, ours, n)
			rates = append(rates, o.rate/r.rate)
			p99s = append(p99s, float64(percentile(o.latencies, 99))/float64(percentile(r.latencies, 99)))
			cpus = append(cpus, float64(o.perOperation(o.client+o.server))/float64(max(1, r.perOperation(r.client+r.server))))
			for s, turn := range map[string]outcome{raw.name: r, ours.name: o} {
				all[s].rate += turn.rate / float64(repetitions())
				all[s].latencies = append(all[s].latencies, turn.latencies...)
				all[s].client += turn.client
				all[s].server += turn.server
			}
		}
		for _, s := range []side{raw, ours} {
			o := all[s.name]
			fmt.Printf("Benchmark/%s/%s\t%8d\t%12.0f ns/op\t%12d p50-ns\t%12d p99-ns\t%12d max-ns", name, s.name,
				len(o.latencies), 1e9/o.rate, percentile(o.latencies, 50), percentile(o.latencies, 99), percentile(o.latencies, 100))
			if c.server != nil {
				fmt.Printf("\t%8d client-cpu-ns\t%8d server-cpu-ns", o.perOperation(o.client), o.perOperation(o.server))
			}
			fmt.Println()
		}
		fmt.Printf("ratio %s %.2f\n", name, median(rates))
		fmt.Printf("latency %s/%s-p99/%d %.2f\n", c.backend, c.what, n, median(p99s))
		if c.server != nil {
			fmt.Printf("cpu %s %.2f\n", name, median(cpus))
		}
	}
}

// turn measures one turn of a side.
func (c comparison) turn(b *testing.B, s side, callers int) outcome {
	b.Helper()
	settle := c.settle[s.name]
	if c.before > 0 {
		takeTurn(b, s, c.before, settle)
	}
	if c.server == nil {
		return takeTurn(b, s, callers, settle)
	}
	client, server := clientCPU(), c.server()
	o := takeTurn(b, s, callers, settle)
	o.client, o.server = clientCPU()-client, c.server()-server
	return o
}

// clientCPU returns the CPU time that this process has used.
func clientCPU() time.Duration {
	var usage syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage) // it fails only for another first argument
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func (o outcome) perOperation(cpu time.Duration) time.Duration {
	return cpu / time.Duration(max(1, len(o.latencies)))
}

var operations atomic.Int64

func takeTurn(b *testing.B, s side, callers int, settle func()) outcome {
	b.Helper()
	latencies := make([][]time.Duration, callers)
	start := time.Now()
	end := start.Add(observation(*turn))
	var running sync.WaitGroup
	var failed atomic.Value
	for c := range callers {
		running.Go(func() {
			for began := time.Now(); began.Before(end); {
				if err := s.op(c, int(operations.Add(1))); err != nil {
					failed.CompareAndSwap(nil, fmt.Errorf("%s: %w", s.name, err))
					return
				}
				now := time.Now()
				latencies[c] = append(latencies[c], now.Sub(began))
				began = now
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		b.Fatal(err)
	}
	if settle != nil {
		settle()
	}
	elapsed := time.Since(start)
	o := outcome{latencies: slices.Concat(latencies...)}
	o.rate = float64(len(o.latencies)) / elapsed.Seconds()
	return o
}

func percentile(ds []time.Duration, p int) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	ds = slices.Clone(ds)
	slices.Sort(ds)
	return ds[(len(ds)-1)*p/100]
}

func median(xs []float64) float64 {
	xs = slices.Clone(xs)
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// once runs a comparison, which measures its own time. It skips repetitions by the benchmark framework.
func once(b *testing.B, compare func()) {
	b.Helper()
	if b.N > 1 {
		b.Skip("comparisons time themselves: run with -benchtime=1x")
	}
	compare()
}

func must[T any](v T, err error) T {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		panic(err)
	}
	return v
}
