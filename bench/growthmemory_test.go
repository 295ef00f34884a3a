package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// openers contains, by backend, the function that opens the store of the raw side again. A child process with one side uses it to
// measure memory.
var openers = map[string]func(where string) (growing, error){}

// peakMemory returns a function that measures one side: it starts a process that reads, watches and lists the side's store, and
// returns the peak memory of the process. where contains the location of each side's store.
func peakMemory(backend string, where [2]string) func(side, resources int) (float64, error) {
	return func(side, resources int) (float64, error) {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestGrowingProcess$")
		cmd.Env = append(os.Environ(), "ASHLAR_BENCH_GROWING="+[2]string{backend, "ashlar"}[side]+" "+where[side],
			fmt.Sprint("ASHLAR_BENCH_RESOURCES=", resources))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return 0, fmt.Errorf("measuring the peak memory in a child process: %w: %s", err, out)
		}
		var kilobytes float64
		line, _, _ := bytes.Cut(out, []byte("\n"))
		if _, err := fmt.Sscanf(string(line), "peak %f", &kilobytes); err != nil {
			return 0, fmt.Errorf("measuring the peak memory: the child process printed %q: %w", out, err)
		}
		return kilobytes * 1024, nil
	}
}

// TestGrowingProcess is the child process of peakMemory. In any other process it does nothing.
func TestGrowingProcess(t *testing.T) {
	backend, where, child := strings.Cut(os.Getenv("ASHLAR_BENCH_GROWING"), " ")
	if !child {
		return
	}
	var n int
	must(fmt.Sscan(os.Getenv("ASHLAR_BENCH_RESOURCES"), &n))
	var s growing
	var err error
	if backend == "ashlar" {
		s, err = openGrowing(where, nil)
	} else {
		s, err = openers[backend](where)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range operationsOf(n) {
		if o.what == "write" {
			continue // only the parent process has the versions
		}
		for i := range 5 {
			if err := o.do(s, i); err != nil {
				t.Fatalf("%s: %v", o.what, err)
			}
		}
	}
	if found, err := s.walk(1000); err != nil || found != n {
		t.Fatalf("walked over %d resources, expected %d: %v", found, n, err)
	}
	var kilobytes int
	must(fmt.Sscan(memory("VmHWM:"), &kilobytes))
	fmt.Printf("peak %d\n", kilobytes)
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
}

// memory returns the present memory of the process (field "VmRSS:"), or its peak ("VmHWM:").
func memory(field string) string {
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/status")))) {
		if text, found := strings.CutPrefix(line, field); found {
			return strings.TrimSpace(text)
		}
	}
	return "unknown"
}

// perResource returns a function that measures one side: it fills a new store and returns the memory of each item. The measured
// stores cannot be used, because their writes have added history.
func perResource(open [2]func() growing) func(side, resources int) (float64, error) {
	return func(side, resources int) (float64, error) {
		s := open[side]()
		before := heap()
		err := s.add(0, resources, func(int) {})
		taken := heap() - before
		return float64(taken) / float64(resources), errors.Join(err, s.close())
	}
}

// heap returns the memory in use, without garbage.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // frees objects that finalizers and pools kept in the first one
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
