package faults

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// evidence is the history of a round, in order.
type evidence struct {
	*roundLog
	run             *run
	round           *round
	observations    []observation // one of each follower
	witness         observation   // the longest one
	keyHistories    map[string]*keyHistory
	writes          map[string]*call        // by the name of the write
	appliedCalls    map[*call]bool          // calls that have changed something
	latest          map[*call]time.Duration // by when a call must have happened, as far as is known
	pictures        []picture
	handlePositions map[handleKey]positionLog // the positions that each handle has shown of each key
}

// observation is the events that a follower saw.
type observation struct {
	follower string // its name
	events   []event
}

// collectEvidence collects the history of a round that has ended.
func collectEvidence(r *run, n *round, observations []observation) *evidence {
	e := &evidence{roundLog: n.copy(), run: r, round: n, keyHistories: map[string]*keyHistory{}, writes: map[string]*call{}, appliedCalls: map[*call]bool{}, latest: map[*call]time.Duration{}}
	e.observations = observations
	for i, s := range observations {
		if i == 0 || e.hasGap(e.witness) && !e.hasGap(s) || e.hasGap(e.witness) == e.hasGap(s) && len(s.events) > len(e.witness.events) {
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
		e.keyHistories[key] = newKeyHistory(key, e.witness.events)
	}
	for _, k := range e.calls {
		for _, p := range k.parts {
			if c := e.keyHistories[p.key]; p.verb == remove && k.outcome != outcomeRefused {
				c.removers[p.expectedState] = append(c.removers[p.expectedState], k)
			}
		}
	}
	e.resolve()
	return e
}

// resolve determines which calls have changed something.
func (e *evidence) resolve() {
	for _, c := range e.keyHistories {
		for _, s := range c.steps {
			if k := e.writes[s.name]; k != nil && !s.isDelete {
				e.appliedCalls[k] = true
			}
		}
	}
	for _, k := range e.calls {
		for _, p := range k.parts {
			if p.verb != remove || k.outcome == outcomeRefused {
				continue
			}
			c := e.keyHistories[p.key]
			if happened := c.deletionsOf[p.expectedState] > 0; happened && (k.outcome == outcomeDone || len(c.removers[p.expectedState]) == 1) {
				e.appliedCalls[k] = true
			}
		}
	}
}

// hasGap reports whether a follower had to list again, so that it may have missed changes.
func (e *evidence) hasGap(s observation) bool {
	return slices.ContainsFunc(s.events, func(ev event) bool { return ev.fromList })
}

// isComplete reports whether the witness has seen every key's changes up to the last write.
func (e *evidence) isComplete() bool {
	if e.hasGap(e.witness) {
		return false
	}
	for _, c := range e.keyHistories {
		if len(c.steps) == 0 || !c.steps[len(c.steps)-1].isLast {
			return false
		}
	}
	return true
}

// acknowledgedPositions returns the acknowledged positions of each key over time.
func (e *evidence) acknowledgedPositions() map[string]positionLog {
	all := map[handleKey]positionLog{}
	for _, k := range e.calls {
		if k.outcome != outcomeDone {
			continue
		}
		for _, p := range k.parts {
			at, ok := 0, false
			switch p.verb {
			case write:
				at, ok = e.keyHistories[p.key].position(p.observedState)
			case remove:
				at = e.keyHistories[p.key].deletionPositions[p.expectedState.uid]
				ok = at > 0
			}
			if ok {
				all[handleKey{key: p.key}] = append(all[handleKey{key: p.key}], handlePosition{k.returnTime, at, k})
			}
		}
	}
	acknowledged := map[string]positionLog{}
	for at, s := range all {
		acknowledged[at.key] = s.rising()
	}
	return acknowledged
}

// pausedTime returns the time during a call while its process was frozen, or replaced by another.
func (e *evidence) pausedTime(w wait) (sum time.Duration) {
	if _, apart := e.run.handles[w.call.handle].(*process); !apart {
		return 0
	}
	for _, f := range e.faults {
		if f.kind == FreezeClient || f.kind == KillClient {
			sum += max(0, min(f.end, w.end)-max(f.begin, w.begin))
		}
	}
	return sum
}

// floors returns the positions of each key that each handle has observed, in answers and in events.
func (e *evidence) floors() map[handleKey]positionLog {
	if e.handlePositions != nil {
		return e.handlePositions
	}
	e.handlePositions = map[handleKey]positionLog{}
	add := func(at handleKey, s handlePosition) { e.handlePositions[at] = append(e.handlePositions[at], s) }
	for _, k := range e.calls {
		if k.outcome != outcomeDone || k.process < 0 {
			continue
		}
		for _, p := range k.parts {
			at, ok := e.keyHistories[p.key].position(p.observedState)
			if p.verb == remove {
				at = e.keyHistories[p.key].deletionPositions[p.expectedState.uid]
				ok = at > 0
			}
			if ok {
				add(handleKey{k.handle, k.process, p.key}, handlePosition{k.returnTime, at, k})
			}
		}
	}
	for _, s := range e.observations {
		for _, ev := range s.events {
			if at, ok := e.keyHistories[ev.key].after(ev); ok {
				add(handleKey{ev.handle, ev.process, ev.key}, handlePosition{ev.at, at, s.follower})
			}
		}
	}
	for at, all := range e.handlePositions {
		e.handlePositions[at] = all.rising()
	}
	return e.handlePositions
}

// writtenVersions returns the version of each write, by the write's name.
func (e *evidence) writtenVersions() map[string]string {
	written := map[string]string{}
	for _, c := range e.keyHistories {
		for _, step := range c.steps {
			if !step.isDelete {
				written[step.name] = step.now.version
			}
		}
	}
	return written
}

// handleKey is a key as a handle sees it, in one of its processes.
type handleKey struct {
	handle, process int
	key             string
}

// handlePosition is the position of a key that a handle had seen at a moment.
type handlePosition struct {
	at       time.Duration
	position int
	by       any // a call, or the name of a follower
}

func (s handlePosition) describe(c *keyHistory) string {
	if s.position == 0 {
		return "nothing"
	}
	if s.position > len(c.steps) {
		return fmt.Sprintf("%d changes, by %v", s.position, s.by)
	}
	return fmt.Sprintf("%v, by %v", c.steps[s.position-1], s.by)
}

// positionLog is sorted by time, and its positions never decrease.
type positionLog []handlePosition

func (s positionLog) before(at time.Duration) handlePosition {
	i, _ := slices.BinarySearchFunc(s, at, func(s handlePosition, at time.Duration) int { return cmp.Compare(s.at, at) })
	if i == 0 {
		return handlePosition{}
	}
	return s[i-1]
}

// rising sorts the log by time and raises each position to the highest earlier one.
func (s positionLog) rising() positionLog {
	slices.SortFunc(s, func(a, b handlePosition) int { return cmp.Compare(a.at, b.at) })
	for i := 1; i < len(s); i++ {
		if s[i].position < s[i-1].position {
			s[i].position, s[i].by = s[i-1].position, s[i-1].by
		}
	}
	return s
}

// picture is porcupine's picture of a part of a key's history.
type picture struct {
	key   string
	model porcupine.Model
	info  porcupine.LinearizationInfo
}
