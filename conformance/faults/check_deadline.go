package faults

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// punctual notes a part of a call that ended just now, if it took longer than it should have.
func (r *run) punctual(h *history, k *call, began, patience time.Duration) {
	if w := (wait{k, began, r.now(), patience}); r.overdue(w, 0) != "" {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.waits = append(h.waits, w)
	}
}

// wait is how long a call took, or a part of it.
type wait struct {
	call                   *call
	began, ended, patience time.Duration
}

// overdue says in what a call has missed its deadline, or "". Nobody is blamed for the time in which the caller stood still.
func (r *run) overdue(w wait, still time.Duration) string {
	took := w.ended - w.began
	if took <= w.patience+r.o.Grace {
		return ""
	}
	late := r.late(w.began, w.ended)
	if took <= w.patience+r.o.Grace+late+still {
		return ""
	}
	return fmt.Sprintf("took %v although its deadline was %v (beyond which it had %v, the machine was %v late, and the caller stood still for %v)",
		took, w.patience, r.o.Grace, late, still)
}

// checkDeadlines holds every call against its deadline.
func checkDeadlines(e *evidence) (found []Violation) {
	waits := e.waits
	for _, k := range e.calls {
		if k.patience != 0 {
			waits = append(waits, wait{k, k.begin, k.returned, k.patience})
		}
		if early(e, k) {
			found = append(found, Violation{"deadlines", fmt.Sprintf("it was told that its time is over after %v of %v: %s", k.returned-k.begin, k.patience, k)})
		}
	}
	for _, w := range waits {
		if wrong := e.run.overdue(w, e.still(w)); wrong != "" {
			found = append(found, Violation{"deadlines", fmt.Sprintf("from %s on it %s: %s", moment(w.began), wrong, w.call)})
		}
	}
	return found
}

// early reports whether a call was told that its context is over, and that nothing was sent, long before it was. Only calls with much
// time are looked at: it begins to run a moment before the call does, and the machine may be late in between.
func early(e *evidence, k *call) bool {
	if k.fate != refused || k.patience < patient || !errors.Is(k.err, context.DeadlineExceeded) && !errors.Is(k.err, context.Canceled) {
		return false
	}
	return k.returned-k.begin+e.run.late(k.begin-k.patience, k.returned)+e.still(wait{call: k, began: k.begin - k.patience, ended: k.returned}) < k.patience/2
}

// still is for how long the process of a call stood still meanwhile, or another one stood in its place.
func (e *evidence) still(w wait) (sum time.Duration) {
	if _, apart := e.run.handles[w.call.handle].(*process); !apart {
		return 0
	}
	for _, f := range e.faults {
		if f.kind == FreezeClient || f.kind == KillClient {
			sum += max(0, min(f.end, w.ended)-max(f.begin, w.began))
		}
	}
	return sum
}
