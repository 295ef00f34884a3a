package faults

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.uber.org/goleak"

	"github.com/ashlar-dev/storage/internal/leaks"
)

// checkDeadlines compares the duration of every call with its deadline.
func checkDeadlines(e *evidence) (found []Violation) {
	waits := e.waits
	for _, k := range e.calls {
		if k.timeout != 0 {
			waits = append(waits, wait{k, k.begin, k.returnTime, k.timeout})
		}
		if early(e, k) {
			found = append(found, Violation{"deadlines", fmt.Sprintf("it failed by its deadline after %v of %v: %s", k.returnTime-k.begin, k.timeout, k)})
		}
	}
	for _, w := range waits {
		if wrong := e.run.overdue(w, e.pausedTime(w)); wrong != "" {
			found = append(found, Violation{"deadlines", fmt.Sprintf("from %s on it %s: %s", formatTime(w.begin), wrong, w.call)})
		}
	}
	return found
}

// early reports whether a call failed by its context, without having sent anything, long before the deadline. Only calls with a
// long timeout count: the timeout starts a moment before the call, and the machine may be late in between.
func early(e *evidence, k *call) bool {
	if k.outcome != outcomeRefused || k.timeout < longTimeout || !errors.Is(k.err, context.DeadlineExceeded) && !errors.Is(k.err, context.Canceled) {
		return false
	}
	return k.returnTime-k.begin+e.run.latenessBetween(k.begin-k.timeout, k.returnTime)+e.pausedTime(wait{call: k, begin: k.begin - k.timeout, end: k.returnTime}) < k.timeout/2
}

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
	for until := r.now() + min(r.o.Timeout, time.Minute); ; {
		err := leaks.Find(ignored...) // looks for a while by itself
		if err == nil {
			return found
		}
		if r.now() > until {
			return append(found, Violation{"nothing is left after Close", err.Error()})
		}
	}
}
