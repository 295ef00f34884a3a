package faults

import (
	"fmt"
)

// checkBookmarks checks that every bookmark follows all changes that were acknowledged before it was requested.
func checkBookmarks(e *evidence) (found []Violation) {
	acknowledged := e.acknowledgedPositions()
	for _, b := range e.bookmarks {
		var events []event
		for _, s := range e.observations {
			if s.follower == b.follower {
				events = s.events[:min(b.eventCount, len(s.events))]
			}
		}
		count := map[string]int{}
		for _, ev := range events {
			count[ev.key]++
		}
		for _, key := range e.round.keys {
			if owed := acknowledged[key].before(b.requestTime); owed.position > count[key] {
				found = append(found, Violation{"bookmarks are true", fmt.Sprintf(
					"%s requested a bookmark at %s and got it after %d changes of %s, although by then there had been %s",
					b.follower, formatTime(b.requestTime), count[key], shortKey(key), owed.describe(e.keyHistories[key]))})
				break
			}
		}
	}
	return found
}

// checkOrder checks the order of events across keys against the clock: a write that began after the acknowledgement of another
// comes later.
func checkOrder(e *evidence) (found []Violation) {
	if e.run.h.NoOrderAcrossKeys != "" {
		return nil
	}
	for _, s := range e.observations {
		var last *call // the call with the latest beginning so far
		var when event
		for _, ev := range s.events {
			k := e.writes[ev.name]
			if k == nil || ev.isDelete || ev.fromList {
				continue
			}
			if last != nil && k.end < last.begin {
				found = append(found, Violation{"one order of changes", fmt.Sprintf("%s saw the second of these first:\n    %s\n    %s\n    the events: %s, %s",
					s.follower, k, last, when, ev)})
				break
			}
			if last == nil || k.begin > last.begin {
				last, when = k, ev
			}
		}
	}
	return found
}

// checkProbes checks watches that clients opened for a short time, from a snapshot or from the cursor of another client: they
// return exactly the changes after their start.
func checkProbes(e *evidence) (found []Violation) {
	for _, p := range e.probes {
		if v := checkProbe(e, p); v != "" {
			found = append(found, Violation{"cursors are exact", fmt.Sprintf("%s on handle %d%s, from %v: %s", p.client, p.handle, programOf(e.run.handles[p.handle], p.process), p.from, v)})
		}
	}
	return found
}

func checkProbe(e *evidence, p *probe) string {
	at, returned := startOf(e, p.from), map[string]bool{}
	for i, ev := range p.events {
		c := e.keyHistories[ev.key]
		around := p.events[max(0, i-3) : i+1]
		position, ok := c.after(ev)
		if !ok {
			return joinLines("returned an event that no follower saw", around)
		}
		before, known := at[ev.key]
		switch {
		case !returned[ev.key] && p.mayRepeat(ev) && (!known || position <= before):
			before = position - 1
		case !known:
			before = position - 1 // of the positions with the key absent, the last one before this event
			if c.at(before) != (state{}) {
				return joinLines("the first event of a key that was absent is not its creation", around)
			}
		}
		if position != before+1 {
			return joinLines(fmt.Sprintf("returned change %d of %s, expected change %d", position, shortKey(ev.key), before+1), around)
		}
		at[ev.key], returned[ev.key] = position, true
	}
	return ""
}

// mayRepeat reports whether an event may repeat a change that the watch's own snapshot contained: the process with the snapshot was killed, and
// the next one continued from the cursor after the snapshot. Such a cursor is exact only if a list is a snapshot.
func (p *probe) mayRepeat(ev event) bool {
	return p.from.list != nil && !p.from.list.isSnapshot && ev.process != p.process
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

// checkForgotten checks every report of compacted history: a compaction must have run since the position was taken, because no other
// one can have gone beyond it.
func checkForgotten(e *evidence) (found []Violation) {
	for _, g := range e.compactionReports {
		after := g.from.since
		if k := e.writes[g.from.write]; k != nil {
			after = max(after, k.begin)
		}
		if !e.run.compactedBetween(after, g.at) {
			found = append(found, Violation{"history stays until it is compacted", fmt.Sprintf(
				"at %s %s of %s on handle %d reported that history is compacted, although no compaction has run since %s: %v",
				formatTime(g.at), g.action, g.by, g.handle, formatTime(after), g.err)})
		}
	}
	return found
}

// positionTracker follows the events of a watch that listed again through the true history of a key.
type positionTracker struct {
	truth     *keyHistory
	idle      bool // no check: the watch itself is the reference, or the true history is unknown
	at        int
	ambiguous bool // the key was absent, possibly at several positions from this one on
}

// next returns the error of a step, or "".
func (p *positionTracker) next(step event) string {
	if p.idle {
		return ""
	}
	if step.fromList && step.now == (state{}) {
		gaps := p.truth.absences()
		for _, at := range gaps {
			if at >= p.at {
				p.at, p.ambiguous = at, true
				return ""
			}
		}
		return "the list after the compaction lacks a key that the watch had shown before"
	}
	at, ok := p.truth.after(step)
	switch {
	case !ok:
		return "shows an event that no other follower saw"
	case step.fromList && at < p.at:
		return "the list after the compaction shows an older state than the watch had shown before"
	case !step.fromList && p.ambiguous && (at <= p.at || p.truth.at(at-1) != (state{})):
		return "the first event of a key that was absent is not its creation"
	case !step.fromList && !p.ambiguous && at != p.at+1:
		return fmt.Sprintf("returned change %d, expected change %d", at, p.at+1)
	}
	p.at, p.ambiguous = at, false
	return ""
}
