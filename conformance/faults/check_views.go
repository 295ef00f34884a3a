package faults

import (
	"fmt"
	"maps"
	"slices"
	"sort"
)

// checkViewsAndLogs checks views of the store at a revision: two views at one revision are equal, and each equals the replay of
// all changes up to it, as followers reported them.
func checkViewsAndLogs(e *evidence) (found []Violation) {
	found = checkViews(e)
	for _, c := range e.round.logs() {
		found = append(found, c.checkStates()...)
		found = append(found, checkCommits(e, c)...)
		if c != e.round.secondLog {
			found = append(found, checkRetold(c, e.round.secondLog)...)
		}
		if c.base != nil {
			found = append(found, checkReplay(e, c)...)
		}
	}
	return found
}

// checkViews compares views at one revision.
func checkViews(e *evidence) (found []Violation) {
	type spot struct {
		revision int64
		key      string
	}
	first := map[spot]*view{}
	for _, v := range e.views {
		for _, key := range v.keys {
			at := spot{v.revision, key}
			other := first[at]
			if other == nil {
				first[at] = v
			} else if other.records[key] != v.records[key] {
				found = append(found, Violation{"the past stays", fmt.Sprintf("at revision %d, %s was %v and then %v:\n    %s\n    %s",
					v.revision, shortKey(key), other.records[key], v.records[key], other.call, v.call)})
			}
		}
	}
	return found
}

// checkReplay compares views with the changes up to their revisions.
func checkReplay(e *evidence, c *followLog) (found []Violation) {
	views := slices.Clone(e.views)
	sort.SliceStable(views, func(i, j int) bool { return views[i].revision < views[j].revision })
	stored, by, next := maps.Clone(c.base), map[string]change{}, 0
	for _, v := range views {
		if !c.covers(v.revision) {
			continue
		}
		for ; next < len(c.changes) && c.changes[next].revision <= v.revision; next++ {
			stored[c.changes[next].key], by[c.changes[next].key] = c.changes[next].now, c.changes[next]
		}
		for _, key := range v.keys {
			if v.records[key] != stored[key] {
				found = append(found, Violation{"the past stays", fmt.Sprintf("at revision %d a view shows %s as %v, but the changes up to that revision result in %v, the last of them being %v: %s",
					v.revision, shortKey(key), v.records[key], stored[key], by[key], v.call)})
				break
			}
		}
	}
	return found
}

// checkCommits finds transactions whose changes are not adjacent in a log.
func checkCommits(e *evidence, c *followLog) (found []Violation) {
	if e.run.h.NoCommitBounds != "" {
		return nil
	}
	in := map[*call]change{}
	for _, ch := range c.changes {
		k := e.writes[ch.name]
		if k == nil || len(k.parts) == 1 {
			continue
		}
		if other, ok := in[k]; ok && other.group != ch.group {
			found = append(found, Violation{"commits are followed as a whole", fmt.Sprintf("%s reported the changes of one transaction as two commits:\n    %s\n    %s\n    %s", c.name, k, other, ch)})
		}
		in[k] = ch
	}
	return found
}

// checkRetold compares two logs of one round over their common range.
func checkRetold(one, other *followLog) (found []Violation) {
	from, until := max(one.from, other.from), min(one.at, other.at)
	a, b := one.changesBetween(from, until), other.changesBetween(from, until)
	for i := range max(len(a), len(b)) {
		switch {
		case i >= len(a):
			return []Violation{{"followers report every change once", fmt.Sprintf("%s lacks a change that %s reported: %v", one.name, other.name, b[i])}}
		case i >= len(b):
			return []Violation{{"followers report every change once", fmt.Sprintf("%s lacks a change that %s reported: %v", other.name, one.name, a[i])}}
		case !a[i].equal(b[i]):
			return []Violation{{"followers report every change once", fmt.Sprintf("change %d after revision %d differs:\n    %s reported %v\n    %s reported %v", i, from, one.name, a[i], other.name, b[i])}}
		}
	}
	return nil
}

// checkFollowed compares logs of a whole round with a watch: each key has the same changes in the same order.
func checkFollowed(e *evidence) (found []Violation) {
	for _, c := range e.round.logs() {
		if !c.incomplete && c.base != nil && c.from == e.round.followLogs[0].from {
			found = append(found, checkSeen(e, c)...)
		}
	}
	return found
}

func checkSeen(e *evidence, c *followLog) (found []Violation) {
	reported := map[string][]change{}
	for _, ch := range c.changes {
		reported[ch.key] = append(reported[ch.key], ch)
	}
	for _, key := range e.round.keys {
		steps := e.keyHistories[key].steps
		for i := range max(len(steps), len(reported[key])) {
			wrong := ""
			switch {
			case i >= len(reported[key]):
				wrong = fmt.Sprintf("%s saw an event that %s did not report: %v", e.witness.follower, c.name, steps[i])
			case i >= len(steps):
				wrong = fmt.Sprintf("%s reported a change that %s did not see: %v", c.name, e.witness.follower, reported[key][i])
			case !reported[key][i].matches(steps[i]):
				wrong = fmt.Sprintf("%s saw %v, but %s reported %v", e.witness.follower, steps[i], c.name, reported[key][i])
			default:
				continue
			}
			found = append(found, Violation{"followers report every change once", wrong})
			break
		}
	}
	return found
}
