package faults

import "fmt"

// checkProbes checks watches that clients opened for a short time, from a snapshot or from the cursor of another client: they
// return exactly the changes after their start.
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
			return joinLines("returned an event that no follower saw", around)
		}
		before, known := at[ev.key]
		if !known {
			before = position - 1 // of the positions with the key absent, the last one before this event
			if c.at(before) != (state{}) {
				return joinLines("the first event of a key that was absent is not its creation", around)
			}
		}
		if position != before+1 {
			return joinLines(fmt.Sprintf("returned change %d of %s, expected change %d", position, shortKey(ev.key), before+1), around)
		}
		at[ev.key] = position
	}
	return ""
}

// startOf returns the position of each key at the start of a watch from o. A key without an entry was absent, at an unknown
// position.
func startOf(e *evidence, o origin) map[string]int {
	at := map[string]int{}
	if o.follower != "" {
		for _, key := range e.round.keys {
			at[key] = o.after[key]
		}
		return at
	}
	for _, p := range o.list.parts {
		if position, ok := e.keyHistories[p.key].position(p.observedState); ok {
			at[p.key] = position
		}
	}
	return at
}
