package faults

import "fmt"

// checkForgotten holds those who were told that history is gone against the compactions: none had begun that can have gone beyond the
// position that they came from.
func checkForgotten(e *evidence) (found []Violation) {
	for _, g := range e.gone {
		after := g.from.since
		if k := e.writes[g.from.write]; k != nil {
			after = max(after, k.begin)
		}
		if !e.run.compacted(after, g.at) {
			found = append(found, Violation{"history stays until it is compacted", fmt.Sprintf(
				"at %s %s of %s on handle %d said that history is gone, although nothing was compacted that is newer than %s: %v",
				moment(g.at), g.what, g.by, g.handle, moment(after), g.err)})
		}
	}
	return found
}

// placing follows the steps of a watch that had to list again through what truly happened to a key.
type placing struct {
	truth *chain
	idle  bool // there is nothing to follow: the watch itself is the truth, or what happened is not known
	at    int
	vague bool // nothing was there, which may have been so at several positions from this one on
}

// next says what is wrong with a step, or "".
func (p *placing) next(step event) string {
	if p.idle {
		return ""
	}
	if step.relisted && step.now == (state{}) {
		gaps := p.truth.absences()
		for _, at := range gaps {
			if at >= p.at {
				p.at, p.vague = at, true
				return ""
			}
		}
		return "the list after history was gone does not show what the watch had shown before"
	}
	at, ok := p.truth.after(step)
	switch {
	case !ok:
		return "shows what no other follower saw"
	case step.relisted && at < p.at:
		return "the list after history was gone shows what is older than what the watch had shown before"
	case !step.relisted && p.vague && (at <= p.at || p.truth.at(at-1) != (state{})):
		return "a change of what was not there"
	case !step.relisted && !p.vague && at != p.at+1:
		return fmt.Sprintf("change %d comes where there should be change %d", at, p.at+1)
	}
	p.at, p.vague = at, false
	return ""
}
