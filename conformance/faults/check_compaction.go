package faults

import "fmt"

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
