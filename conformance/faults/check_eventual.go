package faults

import "fmt"

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
