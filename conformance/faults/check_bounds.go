package faults

import (
	"fmt"
	"time"

	"go.uber.org/goleak"
)

// checkBounds checks the peak use of memory and goroutines, and that no goroutines remain.
func checkBounds(r *run, before goleak.Option) (found []Violation) {
	heap, goroutines := r.peakUsage()
	if heap > r.o.MaxHeap {
		found = append(found, Violation{"memory is bounded", fmt.Sprintf("the heap had %d MiB, more than %d", heap>>20, r.o.MaxHeap>>20)})
	}
	if goroutines > uint64(r.o.MaxGoroutines) {
		found = append(found, Violation{"goroutines are bounded", fmt.Sprintf("there were %d, more than %d", goroutines, r.o.MaxGoroutines)})
	}
	if r.o.NoLeakCheck {
		return found
	}
	ignored := []goleak.Option{before}
	for _, name := range r.h.IgnoreGoroutines {
		ignored = append(ignored, goleak.IgnoreAnyFunction(name))
	}
	for until := r.now() + min(r.o.Timeout, 20*time.Second); ; {
		err := goleak.Find(ignored...) // looks for a while by itself
		if err == nil {
			return found
		}
		if r.now() > until {
			return append(found, Violation{"nothing is left after Close", err.Error()})
		}
	}
}
