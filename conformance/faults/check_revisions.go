package faults

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// revisionInterval is a revision that its source had at some moment of an interval.
type revisionInterval struct {
	source     fmt.Stringer
	begin, end time.Duration
	revision   int64
	change     bool // the revision is its own; otherwise everything that was acknowledged before is part of it
}

// checkRevisions checks revisions against the clock. A change that began after the acknowledgement of another has a higher
// revision. A reading of the newest revision is not older than changes acknowledged before it. The oldest revision never
// decreases.
func checkRevisions(e *evidence) (found []Violation) {
	var all, oldest []revisionInterval
	for _, c := range e.round.logs() {
		changes, wrong := numberedChanges(e, c)
		all, found = append(all, changes...), append(found, wrong...)
	}
	for _, n := range e.readings {
		all = append(all, revisionInterval{n.call, n.call.begin, n.call.end, n.revision, false})
		if n.oldest == 0 {
			continue
		}
		oldest = append(oldest, revisionInterval{n.call, n.call.begin, n.call.end, n.oldest, false})
		if n.oldest > n.revision {
			found = append(found, Violation{"revisions rise", fmt.Sprintf("the oldest revision is %d and the newest one %d: %s", n.oldest, n.revision, n.call)})
		}
	}
	if one, other := findOvertaken(all); one != nil {
		found = append(found, Violation{"revisions rise", fmt.Sprintf("the second of these calls began after the first one had ended, but the first one has revision %d and the second %d:\n    %s\n    %s",
			one.revision, other.revision, one.source, other.source)})
	}
	if one, other := findOvertaken(oldest); one != nil {
		found = append(found, Violation{"compactions stay", fmt.Sprintf("the oldest revision was %d and then %d:\n    %s\n    %s", one.revision, other.revision, one.source, other.source)})
	}
	return found
}

// numberedChanges returns the changes of a log with their calls, if these are known, and the swaps whose answer has another
// revision.
func numberedChanges(e *evidence, c *followLog) (all []revisionInterval, found []Violation) {
	for _, ch := range c.changes {
		k := e.writes[ch.name]
		if ch.now == (record{}) {
			if by := e.keyHistories[ch.key].removers[ch.before.state]; len(by) == 1 {
				k = by[0]
			}
		}
		if k == nil {
			continue // several have tried to delete it
		}
		all = append(all, revisionInterval{k, k.begin, k.end, ch.revision, true})
		if k.revision != 0 && k.revision != ch.revision {
			found = append(found, Violation{"revisions rise", fmt.Sprintf("its answer has revision %d, but followers reported %v: %s", k.revision, ch, k)})
		}
	}
	return all, found
}

// findOvertaken returns two intervals with contradicting revisions. The second began after the first had ended.
func findOvertaken(all []revisionInterval) (one, other *revisionInterval) {
	ended := slices.Clone(all)
	slices.SortFunc(all, func(a, b revisionInterval) int { return cmp.Compare(a.begin, b.begin) })
	slices.SortFunc(ended, func(a, b revisionInterval) int { return cmp.Compare(a.end, b.end) })
	next := 0
	for i := range all {
		for ; next < len(ended) && ended[next].end < all[i].begin; next++ {
			if one == nil || ended[next].revision > one.revision {
				one = &ended[next]
			}
		}
		if one != nil && (one.revision > all[i].revision || one.revision == all[i].revision && all[i].change) {
			return one, &all[i]
		}
	}
	return nil, nil
}
