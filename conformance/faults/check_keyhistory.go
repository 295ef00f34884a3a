package faults

import "fmt"

// checkKeyHistories checks the events of each follower: for each key they form one unbroken chain of writes, from the first to
// the last.
func checkKeyHistories(e *evidence) (found []Violation) {
	for _, s := range e.observations {
		for _, key := range e.round.keys {
			if v := checkKeyHistory(e, s, newKeyHistory(key, s.events)); v != "" {
				found = append(found, Violation{"watches are complete and ordered", s.follower + ": " + v})
			}
		}
		if v := checkTransactions(e, s); v != "" {
			found = append(found, Violation{"transactions in watches", s.follower + ": " + v})
		}
	}
	return found
}

func checkKeyHistory(e *evidence, s observation, c *keyHistory) string {
	at := state{}
	names := map[string]bool{}
	place := positionTracker{truth: e.keyHistories[c.key], idle: !e.isComplete() || !e.hasGap(s)}
	for i, step := range c.steps {
		around := c.steps[max(0, i-3) : i+1]
		if wrong := place.next(step); wrong != "" {
			return joinLines(wrong, around)
		}
		switch k := e.writes[step.name]; {
		case step.fromList && (k != nil || step.now == (state{})):
			at = step.now
			names[step.name] = true
			continue
		case k == nil:
			return joinLines("shows a state that no call wrote", around)
		case step.isDelete && step.now != at:
			return joinLines(fmt.Sprintf("the chain is broken: the deletion is of another than %v", at), around)
		case step.isDelete:
			at = state{}
			continue
		case names[step.name]:
			return joinLines("shows a write twice", around)
		case step.replaces != at.version:
			return joinLines(fmt.Sprintf("the chain is broken: the last write does not replace %v", at), around)
		case at.uid != "" && step.now.uid != at.uid:
			return joinLines("the uid has changed", around)
		}
		names[step.name] = true
		at = step.now
	}
	if len(c.steps) == 0 || !c.steps[len(c.steps)-1].isLast {
		return fmt.Sprintf("does not end with the last write to %s", shortKey(c.key))
	}
	if truth := e.keyHistories[c.key]; !e.hasGap(s) && len(truth.steps) != len(c.steps) {
		for i, step := range c.steps[:min(len(c.steps), len(truth.steps))] {
			if step.now != truth.steps[i].now {
				return fmt.Sprintf("lacks changes that %s saw: returned %v, expected %v", e.witness.follower, step, truth.steps[i])
			}
		}
	}
	return ""
}

// checkTransactions checks the commits in an observation. All events of a transaction lie in one commit. Two calls lie in two
// commits if one ended before the other began, because a reader could then see the first call alone.
func checkTransactions(e *evidence, s observation) string {
	if e.run.h.NoOrderAcrossKeys != "" || e.run.h.NoCommitBounds != "" {
		return ""
	}
	group := 0
	in := map[*call]int{}
	var calls []*call // of the group
	for i, ev := range s.events {
		if k := e.writes[ev.name]; k != nil && !ev.isDelete && !ev.fromList {
			if before, ok := in[k]; ok && before != group {
				return joinLines(fmt.Sprintf("the commit ends between events of one transaction, %s", k), s.events[max(0, i-5):i+1])
			}
			in[k] = group
			for _, other := range calls {
				if other.end < k.begin || k.end < other.begin {
					return joinLines(fmt.Sprintf("one commit has events of two calls, although the first ended before the second began:\n    %s\n    %s", other, k), s.events[max(0, i-5):i+1])
				}
			}
			calls = append(calls, k)
		}
		if !ev.more {
			group++
			calls = nil
		}
	}
	if n := len(s.events); n > 0 && s.events[n-1].more && e.isComplete() {
		return joinLines("the last event of all says that its commit continues", s.events[max(0, n-5):])
	}
	return ""
}
