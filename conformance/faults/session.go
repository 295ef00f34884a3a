package faults

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
)

// run is the state of a run.
type run struct {
	*clock
	h       Harness
	o       Options
	handles []storage.Backend
	report  *Report

	compactions struct {
		sync.Mutex
		all []*episode
	}
}

func addViolations(r *run, found []Violation) {
	r.report.Violations = append(r.report.Violations, found...)
}

// checkTimeout records a part of a call that has just ended if it took too long.
func (r *run) checkTimeout(h *roundLog, k *call, began, timeout time.Duration) {
	if w := (wait{k, began, r.now(), timeout}); r.overdue(w, 0) != "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waits = append(h.waits, w)
	}
}

// overdue describes how a call missed its deadline, or returns "". Time does not count while the caller was frozen.
func (r *run) overdue(w wait, still time.Duration) string {
	took := w.end - w.begin
	if took <= w.timeout+r.o.Grace {
		return ""
	}
	late := r.latenessBetween(w.begin, w.end)
	if took <= w.timeout+r.o.Grace+late+still {
		return ""
	}
	return fmt.Sprintf("took %v, its deadline was %v (allowed: %v beyond it, %v for a late machine, %v for a frozen caller)",
		took, w.timeout, r.o.Grace, late, still)
}

// beginCompaction records that history may be compacted from now on, until the returned function is called.
func (r *run) beginCompaction() (over func()) {
	e := &episode{Compact, r.now(), forever}
	r.compactions.Lock()
	defer r.compactions.Unlock()
	r.compactions.all = append(r.compactions.all, e)
	return func() {
		r.compactions.Lock()
		defer r.compactions.Unlock()
		e.end = r.now()
	}
}

// compactedBetween reports whether a compaction may have run between two moments.
func (r *run) compactedBetween(after, by time.Duration) bool {
	r.compactions.Lock()
	defer r.compactions.Unlock()
	for _, e := range r.compactions.all {
		if e.begin <= by && e.end >= after {
			return true
		}
	}
	return false
}

// source returns a random source that depends on the seed and the purpose only.
func (r *run) source(purpose string) *rand.Rand {
	h := uint64(14695981039346656037)
	for _, b := range []byte(purpose) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return rand.New(rand.NewPCG(r.o.Seed, h))
}

// historian returns the history.Historian of a handle.
func (r *run) historian(handle int) (history.Historian, bool) {
	if r.h.NoHistorian != "" {
		return nil, false
	}
	return storage.As[history.Historian](r.handles[handle])
}

// longTimeout is the deadline of most calls.
const longTimeout = 20 * time.Second
