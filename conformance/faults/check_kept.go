package faults

import (
	"fmt"
	"time"
)

// checkKept holds acknowledged writes against strong reads, by what callers know and without what watches showed: a version that
// nobody can have replaced is what every later read of its key has to find.
func checkKept(e *evidence) (found []Violation) {
	replaced := map[string]bool{}
	for _, k := range e.calls {
		for _, p := range k.parts {
			if k.fate != refused && (p.verb == write || p.verb == remove) {
				replaced[p.given.version] = true
			}
		}
	}
	all := map[string][]kept{}
	for _, k := range e.calls {
		for _, p := range k.parts {
			if k.fate == done && p.verb == write && !replaced[p.got.version] {
				all[p.key] = append(all[p.key], kept{p.got, k.returned, k})
			}
		}
	}
	for _, k := range e.calls {
		if k.fate != done || !k.strong {
			continue
		}
		for _, p := range k.parts {
			for _, w := range all[p.key] {
				if k.begin > w.since && p.got != w.what {
					found = append(found, Violation{"acknowledged changes stay", fmt.Sprintf("nobody can have replaced %s, and yet it is not there any more:\n    %s\n    %s", w.what, w.by, k)})
				}
			}
		}
	}
	return found
}

// kept is a version that nobody can have replaced.
type kept struct {
	what  state
	since time.Duration
	by    *call
}
