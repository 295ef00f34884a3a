package faults

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// evidence is the history of a round, put in order.
type evidence struct {
	*history
	run      *run
	round    *round
	sights   []sight // what each follower saw
	witness  sight   // the one that saw most
	chains   map[string]*chain
	writes   map[string]*call        // by the name of the write
	applied  map[*call]bool          // calls that have changed something
	latest   map[*call]time.Duration // by when a call must have happened, as far as is known
	pictures []picture
	shown    map[place]shownBefore // what each handle has shown of each key
}

// sight is what a follower saw.
type sight struct {
	follower string // its name
	events   []event
}

// evidence collects what there is about a round that nobody works in any more.
func collectEvidence(r *run, n *round, sights []sight) *evidence {
	e := &evidence{history: n.copy(), run: r, round: n, chains: map[string]*chain{}, writes: map[string]*call{}, applied: map[*call]bool{}, latest: map[*call]time.Duration{}}
	e.sights = sights
	for i, s := range sights {
		if i == 0 || e.broken(e.witness) && !e.broken(s) || e.broken(e.witness) == e.broken(s) && len(s.events) > len(e.witness.events) {
			e.witness = s // the longest, and one without a gap if there is any
		}
	}
	for _, k := range e.calls {
		for _, p := range k.parts {
			if p.verb == write {
				e.writes[p.name] = k
			}
		}
	}
	for _, key := range n.keys {
		e.chains[key] = newChain(key, e.witness.events)
	}
	for _, k := range e.calls {
		for _, p := range k.parts {
			if c := e.chains[p.key]; p.verb == remove && k.fate != refused {
				c.removers[p.given] = append(c.removers[p.given], k)
			}
		}
	}
	e.resolve()
	return e
}

// resolve finds out which calls have changed something.
func (e *evidence) resolve() {
	for _, c := range e.chains {
		for _, s := range c.steps {
			if k := e.writes[s.name]; k != nil && !s.deleted {
				e.applied[k] = true
			}
		}
	}
	for _, k := range e.calls {
		for _, p := range k.parts {
			if p.verb != remove || k.fate == refused {
				continue
			}
			c := e.chains[p.key]
			if happened := c.removed[p.given] > 0; happened && (k.fate == done || len(c.removers[p.given]) == 1) {
				e.applied[k] = true
			}
		}
	}
}

// broken reports whether a follower had to list again, so that there may be changes that it has not seen.
func (e *evidence) broken(s sight) bool {
	return slices.ContainsFunc(s.events, func(ev event) bool { return ev.relisted })
}

// whole reports whether the witness has seen every key's changes up to the last write.
func (e *evidence) whole() bool {
	if e.broken(e.witness) {
		return false
	}
	for _, c := range e.chains {
		if len(c.steps) == 0 || !c.steps[len(c.steps)-1].last {
			return false
		}
	}
	return true
}

// acknowledged is which changes of each key were acknowledged at which time.
func (e *evidence) acknowledged() map[string]shownBefore {
	all := map[place]shownBefore{}
	for _, k := range e.calls {
		if k.fate != done {
			continue
		}
		for _, p := range k.parts {
			at, ok := 0, false
			switch p.verb {
			case write:
				at, ok = e.chains[p.key].position(p.got)
			case remove:
				at = e.chains[p.key].gone[p.given.uid]
				ok = at > 0
			}
			if ok {
				all[place{key: p.key}] = append(all[place{key: p.key}], shown{k.returned, at, k})
			}
		}
	}
	acknowledged := map[string]shownBefore{}
	for at, s := range all {
		acknowledged[at.key] = s.rising()
	}
	return acknowledged
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

// written is the version that each write has left, by the write's name.
func (e *evidence) written() map[string]string {
	written := map[string]string{}
	for _, c := range e.chains {
		for _, step := range c.steps {
			if !step.deleted {
				written[step.name] = step.now.version
			}
		}
	}
	return written
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
	by       any // a call, or the name of a follower
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

// picture is porcupine's, of a piece of a key's history.
type picture struct {
	key   string
	model porcupine.Model
	info  porcupine.LinearizationInfo
}
