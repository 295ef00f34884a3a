package faults

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// recovery is how long after a fault the database may not answer as usual yet.
const recovery = 15 * time.Second

// checkOutcomes compares the answers of calls with the observed changes. Acknowledged changes are present and refused changes
// are not. Transactions are atomic. Reads return written states only. Outcomes are unknown only while the database is out of
// reach.
func checkOutcomes(e *evidence) (found []Violation) {
	report := func(check, format string, args ...any) {
		found = append(found, Violation{check, fmt.Sprintf(format, args...)})
	}
	written := e.writtenVersions()
	for _, k := range e.calls {
		there, missing := 0, 0
		for _, p := range k.parts {
			c := e.keyHistories[p.key]
			switch p.verb {
			case write:
				version, ok := written[p.name]
				if !ok {
					missing++
				} else {
					there++
				}
				switch {
				case ok && k.outcome == outcomeRefused:
					report("refused changes do not happen", "%s was refused, but version %s is present: %s", p.name, version, k)
				case ok && k.outcome == outcomeDone && version != p.observedState.version:
					report("versions", "it was written as version %s: %s", version, k)
				case !ok && k.outcome == outcomeDone:
					report("acknowledged changes stay", "no watch has shown %s: %s\n%s", p.name, k, describeState(c, p.expectedState))
				}
			case remove:
				if k.outcome == outcomeDone && c.deletionPositions[p.expectedState.uid] == 0 && containsUID(c, p.expectedState.uid) {
					report("acknowledged changes stay", "%s was never deleted: %s", p.expectedState, k)
				}
			case read:
				if _, known := c.position(p.observedState); k.outcome == outcomeDone && p.observedState != (state{}) && !known {
					report("reads show written states", "no watch has shown %s of %s: %s\n%s", p.observedState, shortKey(p.key), k, describeState(c, p.observedState))
				}
			}
		}
		if there > 0 && missing > 0 {
			report("transactions are atomic", "%d of its writes are there and %d are not: %s", there, missing, k)
		}
		if k.outcome == outcomeUnknown && k.timeout >= longTimeout && !duringFault(e, k) && !lackedResources(e, k) {
			report("outcomes are known", "the outcome is unknown, although no fault was active: %s", k)
		}
	}
	for _, c := range e.keyHistories {
		for i, step := range c.steps {
			if step.isDelete && len(c.removers[step.now]) == 0 {
				report("refused changes do not happen", "no call that can have succeeded deleted %s", joinLines(shortKey(c.key), c.steps[max(0, i-2):i+1]))
			}
		}
	}
	return found
}

// duringFault reports whether a fault may have affected a call: it lasted during the call, had ended less than recovery before, or
// had ended and the handle had received no answer since.
func duringFault(e *evidence, k *call) bool {
	for _, f := range e.faults {
		if f.begin <= k.returnTime && k.begin <= max(f.end+recovery, answeredAfter(e, k.handle, f.end)) {
			return true
		}
	}
	return false
}

// answeredAfter returns the time of the first answer to a handle after a moment.
func answeredAfter(e *evidence, handle int, after time.Duration) time.Duration {
	first := forever
	for _, k := range e.calls {
		if k.handle == handle && k.outcome == outcomeDone && k.begin >= after {
			first = min(first, k.returnTime)
		}
	}
	return first
}

// lackedResources reports whether a call ran out of time for lack of processor or disk. A call that the machine delayed for a
// tenth of its timeout had too little processor time. A disk that is busy with other work delays all changes of a handle, so a
// call was lost only if many later changes of the same handle overtook it.
func lackedResources(e *evidence, k *call) bool {
	const many = 20
	if !errors.Is(k.err, context.DeadlineExceeded) {
		return false
	}
	return e.run.latenessBetween(k.begin, k.returnTime) > k.timeout/10 || countOvertaking(e, k) < many
}

// countOvertaking counts the changes that began after a call on the same handle and were acknowledged before it returned.
func countOvertaking(e *evidence, k *call) (n int) {
	for _, other := range e.calls {
		if other.handle == k.handle && other.outcome == outcomeDone && other.changes() && other.begin > k.begin && other.returnTime < k.returnTime {
			n++
		}
	}
	return n
}

// containsUID reports whether a resource with the uid was ever stored under the key.
func containsUID(c *keyHistory, uid string) bool {
	for _, step := range c.steps {
		if step.now.uid == uid {
			return true
		}
	}
	return false
}

// describeState describes the changes around a state.
func describeState(c *keyHistory, s state) string {
	if p, ok := c.positions[s.version]; ok {
		return joinLines("changes around it:", c.steps[max(0, p-2):min(len(c.steps), p+2)])
	}
	return fmt.Sprintf("%s had %d changes, none of them left %s", shortKey(c.key), len(c.steps), s)
}
