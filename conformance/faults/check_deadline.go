package faults

import (
	"context"
	"errors"
	"fmt"
)

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
