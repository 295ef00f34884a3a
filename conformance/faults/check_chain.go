package faults

import "fmt"

// checkChains holds what each follower saw against itself and against what writers were told: for each key one unbroken chain from
// nothing to the last write.
func checkChains(e *evidence) (found []Violation) {
	for _, s := range e.sights {
		for _, key := range e.round.keys {
			if v := checkChain(e, s, newChain(key, s.events)); v != "" {
				found = append(found, Violation{"watches are complete and ordered", s.follower + ": " + v})
			}
		}
		if v := checkTogether(e, s); v != "" {
			found = append(found, Violation{"transactions in watches", s.follower + ": " + v})
		}
	}
	return found
}

func checkChain(e *evidence, s sight, c *chain) string {
	at := state{}
	names := map[string]bool{}
	place := placing{truth: e.chains[c.key], idle: !e.whole() || !e.broken(s)}
	for i, step := range c.steps {
		around := c.steps[max(0, i-3) : i+1]
		if wrong := place.next(step); wrong != "" {
			return lines(wrong, around)
		}
		switch k := e.writes[step.name]; {
		case step.relisted && (k != nil || step.now == (state{})):
			at = step.now
			names[step.name] = true
			continue
		case k == nil:
			return lines("shows what nobody wrote", around)
		case step.deleted && step.now != at:
			return lines(fmt.Sprintf("the chain is broken: the deletion is of another than %v", at), around)
		case step.deleted:
			at = state{}
			continue
		case names[step.name]:
			return lines("shows a write twice", around)
		case step.replaces != at.version:
			return lines(fmt.Sprintf("the chain is broken: the last write does not replace %v", at), around)
		case at.uid != "" && step.now.uid != at.uid:
			return lines("the uid has changed", around)
		}
		names[step.name] = true
		at = step.now
	}
	if len(c.steps) == 0 || !c.steps[len(c.steps)-1].last {
		return fmt.Sprintf("does not end with the last write to %s", short(c.key))
	}
	if truth := e.chains[c.key]; !e.broken(s) && len(truth.steps) != len(c.steps) {
		for i, step := range c.steps[:min(len(c.steps), len(truth.steps))] {
			if step.now != truth.steps[i].now {
				return fmt.Sprintf("lacks changes that %s saw: %v comes where there should be %v", e.witness.follower, step, truth.steps[i])
			}
		}
	}
	return ""
}

// checkTogether looks for transactions whose events are torn apart: no event of anything else is between them, unless it belongs to
// the same commit.
func checkTogether(e *evidence, s sight) string {
	if e.run.h.NoOrderAcrossKeys != "" || e.run.h.NoCommitBounds != "" {
		return ""
	}
	group := 0
	in := map[*call]int{}
	for i, ev := range s.events {
		if k := e.writes[ev.name]; k != nil && !ev.deleted && !ev.relisted && len(k.parts) > 1 {
			if before, ok := in[k]; ok && before != group {
				return lines(fmt.Sprintf("the commit ends between events of one transaction, %s", k), s.events[max(0, i-5):i+1])
			}
			in[k] = group
		}
		if !ev.more {
			group++
		}
	}
	return ""
}
