package faults

import "fmt"

// checkForgotten holds those who were told that history is gone against the compactions: none had begun that can have gone beyond the
// position that they came from.
func checkForgotten(e *evidence) (found []Violation) {
	for _, g := range e.compactionReports {
		after := g.from.since
		if k := e.writes[g.from.write]; k != nil {
			after = max(after, k.begin)
		}
		if !e.run.compactedBetween(after, g.at) {
			found = append(found, Violation{"history stays until it is compacted", fmt.Sprintf(
				"at %s %s of %s on handle %d said that history is gone, although nothing was compacted that is newer than %s: %v",
				formatTime(g.at), g.what, g.by, g.handle, formatTime(after), g.err)})
		}
	}
	return found
}

// positionTracker follows the steps of a watch that had to list again through what truly happened to a key.
type positionTracker struct {
	truth     *keyHistory
	idle      bool // there is nothing to follow: the watch itself is the truth, or what happened is not known
	at        int
	ambiguous bool // nothing was there, which may have been so at several positions from this one on
}

// next says what is wrong with a step, or "".
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
		return "the list after history was gone does not show what the watch had shown before"
	}
	at, ok := p.truth.after(step)
	switch {
	case !ok:
		return "shows what no other follower saw"
	case step.fromList && at < p.at:
		return "the list after history was gone shows what is older than what the watch had shown before"
	case !step.fromList && p.ambiguous && (at <= p.at || p.truth.at(at-1) != (state{})):
		return "a change of what was not there"
	case !step.fromList && !p.ambiguous && at != p.at+1:
		return fmt.Sprintf("change %d comes where there should be change %d", at, p.at+1)
	}
	p.at, p.ambiguous = at, false
	return ""
}
