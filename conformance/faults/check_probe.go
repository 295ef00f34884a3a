package faults

import "fmt"

// checkProbes holds watches that were opened for a short while, from a snapshot or from somebody else's cursor, against what they
// should have shown: exactly the changes after where they began.
func checkProbes(e *evidence) (found []Violation) {
	for _, p := range e.probes {
		if v := checkProbe(e, p); v != "" {
			found = append(found, Violation{"cursors are exact", fmt.Sprintf("%s on handle %d, from %v: %s", p.client, p.handle, p.from, v)})
		}
	}
	return found
}

func checkProbe(e *evidence, p *probe) string {
	at := startOf(e, p.from)
	for i, ev := range p.events {
		c := e.keyHistories[ev.key]
		around := p.events[max(0, i-3) : i+1]
		position, ok := c.after(ev)
		if !ok {
			return joinLines("shows what no follower saw", around)
		}
		before, known := at[ev.key]
		if !known {
			before = position - 1 // of the places where nothing was, the one before this
			if c.at(before) != (state{}) {
				return joinLines("a change of what was not there", around)
			}
		}
		if position != before+1 {
			return joinLines(fmt.Sprintf("change %d of %s comes where there should be change %d", position, shortKey(ev.key), before+1), around)
		}
		at[ev.key] = position
	}
	return ""
}

// startOf is at which position of each key a watch from o begins. A key that is not in it was absent, in one place or another.
func startOf(e *evidence, o origin) map[string]int {
	at := map[string]int{}
	if o.follower != "" {
		for _, key := range e.round.keys {
			at[key] = o.after[key]
		}
		return at
	}
	for _, p := range o.list.parts {
		if position, ok := e.keyHistories[p.key].position(p.observed); ok {
			at[p.key] = position
		}
	}
	return at
}
