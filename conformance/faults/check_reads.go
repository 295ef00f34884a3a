package faults

import (
	"fmt"
	"time"
)

// checkEventual checks eventual reads and lists: they are never older than an earlier answer or event of the same handle, and
// never come from the future.
func checkEventual(e *evidence) (found []Violation) {
	floors := e.floors()
	for _, k := range e.calls {
		if k.strong || !k.reads() || k.outcome != outcomeDone || k.process < 0 {
			continue
		}
		for _, p := range k.parts {
			c := e.keyHistories[p.key]
			floor := floors[handleKey{k.handle, k.process, p.key}].before(k.begin)
			if p.observedState == (state{}) {
				if gaps := c.absences(); gaps[len(gaps)-1] < floor.position {
					found = append(found, Violation{"eventual reads do not go back", fmt.Sprintf(
						"nothing of %s is older than the state that handle %d had shown, %s: %s", shortKey(p.key), k.handle, floor.describe(c), k)})
				}
				continue
			}
			at, ok := c.position(p.observedState)
			switch {
			case !ok: // reported elsewhere
			case at < floor.position:
				found = append(found, Violation{"eventual reads do not go back", fmt.Sprintf(
					"%s of %s is older than the state that handle %d had shown, %s: %s", p.observedState, shortKey(p.key), k.handle, floor.describe(c), k)})
			case e.writes[p.writeName] != nil && e.writes[p.writeName].begin > k.end:
				found = append(found, Violation{"eventual reads show written states", fmt.Sprintf("%s was written later: %s", p.observedState, k)})
			}
		}
	}
	return found
}

// checkReadYourWrites checks strong reads against acknowledged writes, without the evidence of watches: if no call can have
// replaced a version, every later strong read of the key returns it.
func checkReadYourWrites(e *evidence) (found []Violation) {
	replaced := map[string]bool{}
	for _, k := range e.calls {
		for _, p := range k.parts {
			if k.outcome != outcomeRefused && (p.verb == write || p.verb == remove) {
				replaced[p.expectedState.version] = true
			}
		}
	}
	all := map[string][]currentVersion{}
	for _, k := range e.calls {
		for _, p := range k.parts {
			if k.outcome == outcomeDone && p.verb == write && !replaced[p.observedState.version] {
				all[p.key] = append(all[p.key], currentVersion{p.observedState, k.returnTime, k})
			}
		}
	}
	for _, k := range e.calls {
		if k.outcome != outcomeDone || !k.strong {
			continue
		}
		for _, p := range k.parts {
			for _, w := range all[p.key] {
				if k.begin > w.since && p.observedState != w.state {
					found = append(found, Violation{"acknowledged changes stay", fmt.Sprintf("no call can have replaced %s, but a later read does not return it:\n    %s\n    %s", w.state, w.by, k)})
				}
			}
		}
	}
	return found
}

// currentVersion is a version that no call can have replaced.
type currentVersion struct {
	state state
	since time.Duration
	by    *call
}
