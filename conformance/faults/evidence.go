package faults

import (
	"slices"
	"time"
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
	follower *follower
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

// chain is what was stored under a key, in order. Position 0 is nothing, position p what step p-1 left.
type chain struct {
	key       string
	steps     []event
	positions map[string]int    // by version
	removed   map[state]int     // the position after the deletion of what
	gone      map[string]int    // the same by uid
	removers  map[state][]*call // that were not refused
}

func newChain(key string, events []event) *chain {
	c := &chain{key: key, positions: map[string]int{}, removed: map[state]int{}, gone: map[string]int{}, removers: map[state][]*call{}}
	for _, ev := range events {
		if ev.key != key {
			continue
		}
		c.steps = append(c.steps, ev)
		if ev.deleted {
			c.removed[ev.now], c.gone[ev.now.uid] = len(c.steps), len(c.steps)
		} else {
			c.positions[ev.now.version] = len(c.steps)
		}
	}
	return c
}

// at is what is stored at a position.
func (c *chain) at(position int) state {
	if position == 0 || c.steps[position-1].deleted {
		return state{}
	}
	return c.steps[position-1].now
}

// position is where a state that was read is; false if nowhere, or in several places because it is nothing.
func (c *chain) position(s state) (int, bool) {
	p, ok := c.positions[s.version]
	return p, ok && s.version != "" && c.at(p) == s
}

// after is the position that an event leads to; false if it is none of the chain's.
func (c *chain) after(ev event) (int, bool) {
	if ev.deleted {
		return c.removed[ev.now], c.removed[ev.now] > 0
	}
	at, ok := c.positions[ev.now.version]
	return at, ok
}

// absences are the positions at which nothing is stored.
func (c *chain) absences() (positions []int) {
	for p := range len(c.steps) + 1 {
		if c.at(p) == (state{}) {
			positions = append(positions, p)
		}
	}
	return positions
}

// longestStall is the longest time in which no call succeeded.
func longestStall(e *evidence) (longest time.Duration) {
	var ends []time.Duration
	for _, k := range e.calls {
		if k.fate == done {
			ends = append(ends, k.returned)
		}
	}
	slices.Sort(ends)
	for i := 1; i < len(ends); i++ {
		longest = max(longest, ends[i]-ends[i-1])
	}
	return longest
}

// violations runs all checks. Most of them go by what a follower saw, so they say nothing where none has seen everything.
func findViolations(e *evidence) (found []Violation) {
	checks := []func(*evidence) []Violation{func(e *evidence) []Violation { return e.oddities }, checkKept, checkChains, checkForgotten, checkDeadlines, checkPast, checkRevisions}
	if e.whole() {
		checks = append(checks, checkOutcomes, checkSerial, checkPorcupine, checkEventual, checkOwners, checkProbes, checkBookmarks, checkOrder, checkFollowed)
	}
	for _, check := range checks {
		if more := check(e); len(more) > 3 {
			found = append(found, more[:3]...) // the rest is more of the same
		} else {
			found = append(found, more...)
		}
	}
	return found
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
