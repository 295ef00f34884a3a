package faults

import "fmt"

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
