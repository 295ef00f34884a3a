package faults

// findViolations runs all checks. Most of them need a follower that has seen all events, and are skipped without one.
func findViolations(e *evidence) (found []Violation) {
	checks := []func(*evidence) []Violation{func(e *evidence) []Violation { return e.reports }, checkReadYourWrites, checkKeyHistories, checkForgotten, checkDeadlines, checkViewsAndLogs, checkRevisions}
	if e.isComplete() {
		checks = append(checks, checkOutcomes, checkSerial, checkPorcupine, checkEventual, checkOwners, checkProbes, checkBookmarks, checkOrder, checkFollowed)
	}
	for _, check := range checks {
		if more := check(e); len(more) > 3 {
			found = append(found, more[:3]...) // the rest is more of the same
		} else {
			found = append(found, more...)
		}
	}
	return found
}
