package faults

import "fmt"

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
