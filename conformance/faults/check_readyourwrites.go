package faults

import (
	"fmt"
	"time"
)

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
