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

// openers open the raw side of a backend again: memory is measured in a separate process with one side.
var openers = map[string]func(where string) (growing, error){}

// inProcess returns the peak memory of a process that reads, watches and lists a store to its end. where contains the location of
// each side's store.
func inProcess(backend string, where [2]string) func(side, resources int) (float64, error) {
	return func(side, resources int) (float64, error) {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestGrowingProcess$")
		cmd.Env = append(os.Environ(), "ASHLAR_BENCH_GROWING="+[2]string{backend, "ashlar"}[side]+" "+where[side],
			fmt.Sprint("ASHLAR_BENCH_RESOURCES=", resources))
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return 0, fmt.Errorf("the process that reads the store: %w: %s", err, out)
		}
		var kilobytes float64
		line, _, _ := bytes.Cut(out, []byte("\n"))
		if _, err := fmt.Sscanf(string(line), "peak %f", &kilobytes); err != nil {
			return 0, fmt.Errorf("the process that reads the store printed %q: %w", out, err)
		}
		return kilobytes * 1024, nil
	}
}

// TestGrowingProcess is that process.
func TestGrowingProcess(t *testing.T) {
	backend, where, is := strings.Cut(os.Getenv("ASHLAR_BENCH_GROWING"), " ")
	if !is {
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
			continue // this process does not know the versions
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

// memory returns the present memory of the process (VmRSS), or its peak (VmHWM).
func memory(what string) string {
	for line := range strings.Lines(string(must(os.ReadFile("/proc/self/status")))) {
		if text, is := strings.CutPrefix(line, what); is {
			return strings.TrimSpace(text)
		}
	}
	return "unknown"
}

// perResource returns the memory of each item in a store that was only filled: in a store that was measured, history has grown and
// is replaced by later changes.
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
