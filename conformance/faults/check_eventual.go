package faults

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// checkEventual holds eventual reads and lists against what the same handle has answered, or its watches have shown, before they
// began: they are never older. Nor do they come from the future.
func checkEventual(e *evidence) (found []Violation) {
	floors := e.floors()
	for _, k := range e.calls {
		if k.strong || !k.reads() || k.fate != done || k.process < 0 {
			continue
		}
		for _, p := range k.parts {
			c := e.chains[p.key]
			floor := floors[place{k.handle, k.process, p.key}].before(k.begin)
			if p.got == (state{}) {
				if gaps := c.absences(); gaps[len(gaps)-1] < floor.position {
					found = append(found, Violation{"eventual reads do not go back", fmt.Sprintf(
						"nothing of %s is older than what handle %d had shown, %s: %s", short(p.key), k.handle, floor.what(c), k)})
				}
				continue
			}
			at, ok := c.position(p.got)
			switch {
			case !ok: // reported elsewhere
			case at < floor.position:
				found = append(found, Violation{"eventual reads do not go back", fmt.Sprintf(
					"%s of %s is older than what handle %d had shown, %s: %s", p.got, short(p.key), k.handle, floor.what(c), k)})
			case e.writes[p.shown] != nil && e.writes[p.shown].begin > k.end:
				found = append(found, Violation{"eventual reads show what was written", fmt.Sprintf("%s was written later: %s", p.got, k)})
			}
		}
	}
	return found
}

// place is a key as a handle sees it, in one of its processes.
type place struct {
	handle, process int
	key             string
}

// shown is a position of a key that a handle had shown at a moment.
type shown struct {
	at       time.Duration
	position int
	by       fmt.Stringer
}

func (s shown) what(c *chain) string {
	if s.position == 0 {
		return "nothing"
	}
	if s.position > len(c.steps) {
		return fmt.Sprintf("%d changes, by %v", s.position, s.by)
	}
	return fmt.Sprintf("%v, by %v", c.steps[s.position-1], s.by)
}

// shownBefore is sorted by time, positions never falling.
type shownBefore []shown

func (s shownBefore) before(at time.Duration) shown {
	i, _ := slices.BinarySearchFunc(s, at, func(s shown, at time.Duration) int { return cmp.Compare(s.at, at) })
	if i == 0 {
		return shown{}
	}
	return s[i-1]
}

// rising sorts by time and lets no position fall.
func (s shownBefore) rising() shownBefore {
	slices.SortFunc(s, func(a, b shown) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(s); i++ {
		if s[i].position < s[i-1].position {
			s[i].position, s[i].by = s[i-1].position, s[i-1].by
		}
	}
	return s
}

// floors is what each handle has shown of each key, as an answer or as an event.
func (e *evidence) floors() map[place]shownBefore {
	if e.shown != nil {
		return e.shown
	}
	e.shown = map[place]shownBefore{}
	add := func(at place, s shown) { e.shown[at] = append(e.shown[at], s) }
	for _, k := range e.calls {
		if k.fate != done || k.process < 0 {
			continue
		}
		for _, p := range k.parts {
			at, ok := e.chains[p.key].position(p.got)
			if p.verb == remove {
				at = e.chains[p.key].gone[p.given.uid]
				ok = at > 0
			}
			if ok {
				add(place{k.handle, k.process, p.key}, shown{k.returned, at, k})
			}
		}
	}
	for _, s := range e.sights {
		for _, ev := range s.events {
			if at, ok := e.chains[ev.key].after(ev); ok {
				add(place{ev.handle, ev.process, ev.key}, shown{ev.at, at, s.follower})
			}
		}
	}
	for at, all := range e.shown {
		e.shown[at] = all.rising()
	}
	return e.shown
}
