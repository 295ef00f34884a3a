package faults

import "fmt"

// checkBookmarks holds every bookmark against the changes that had been acknowledged when it was asked for.
func checkBookmarks(e *evidence) (found []Violation) {
	acknowledged := e.acknowledged()
	for _, b := range e.bookmarks {
		var events []event
		for _, s := range e.sights {
			if s.follower == b.follower {
				events = s.events[:min(b.at, len(s.events))]
			}
		}
		count := map[string]int{}
		for _, ev := range events {
			count[ev.key]++
		}
		for _, key := range e.round.keys {
			if owed := acknowledged[key].before(b.asked); owed.position > count[key] {
				found = append(found, Violation{"bookmarks are true", fmt.Sprintf(
					"%s asked at %s and got its bookmark after %d changes of %s, although by then there had been %s",
					b.follower.name, moment(b.asked), count[key], short(key), owed.what(e.chains[key]))})
				break
			}
		}
	}
	return found
}

// acknowledged is which changes of each key were acknowledged at which time.
func (e *evidence) acknowledged() map[string]shownBefore {
	all := map[place]shownBefore{}
	for _, k := range e.calls {
		if k.fate != done {
			continue
		}
		for _, p := range k.parts {
			at, ok := 0, false
			switch p.verb {
			case write:
				at, ok = e.chains[p.key].position(p.got)
			case remove:
				at = e.chains[p.key].gone[p.given.uid]
				ok = at > 0
			}
			if ok {
				all[place{key: p.key}] = append(all[place{key: p.key}], shown{k.returned, at, k})
			}
		}
	}
	acknowledged := map[string]shownBefore{}
	for at, s := range all {
		acknowledged[at.key] = s.rising()
	}
	return acknowledged
}
