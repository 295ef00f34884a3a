package conformance

import (
	"cmp"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
)

// Run runs the suite against h. Each case is a subtest named topic/case with a store of its own. Cases of a topic run in
// parallel. Run returns when all cases have ended. Do not call it from a parallel test, because the search for leaked
// goroutines would find goroutines of other tests.
func Run(t *testing.T, h Harness) {
	t.Helper()
	h.complete(t)
	probe(&h, t)
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			for _, c := range topic.cases {
				if reason := h.exempt(c.needs); reason != "" {
					t.Logf("%s does not apply: %s", c.name, reason)
					continue
				}
				t.Run(c.name, func(t *testing.T) {
					if !c.exclusive {
						t.Parallel()
					}
					runCase(&h, t, c)
				})
			}
		})
	}
}

// topics are the topics of the suite.
var topics = []topic{
	leakCases,
	versionCases,
	keyCases,
	listCases,
	pagingCases,
	cursorCases,
	snapshotCases,
	watcherCases,
	bookmarkCases,
	boundCases,
	closingCases,
	aliasingCases,
	limitCases,
	payloadCases,
	historyCases,
	historianCases,
	deadlineCases,
	urlCases,
	commitCases,
	loadCases,
	damageCases,
	processCases,
	moverCases,
}

// probe opens a store and compares its capabilities with the exemptions of the harness.
func probe(h *Harness, t testing.TB) {
	t.Helper()
	s := newSuite(h, t)
	_, pager := storage.As[storage.Pager](s.b)
	_, resumer := storage.As[storage.Resumer](s.b)
	_, transactor := storage.As[storage.Transactor](s.b)
	_, historian := storage.As[history.Historian](s.b)
	_, mover := storage.As[driver.Mover](s.b)
	_, guards := storage.As[driver.GuardedMover](s.b)
	_, bulk := storage.As[driver.Bulk](s.b)
	for _, c := range []struct {
		name, field string
		offered     bool
		reason      string
	}{
		{"storage.Pager", "NoPager", pager, h.NoPager},
		{"storage.Resumer", "NoResumer", resumer, h.NoResumer},
		{"storage.Transactor", "NoTransactor", transactor, h.NoTransactor},
		{"history.Historian", "NoHistorian", historian, h.NoHistorian},
		{"driver.Mover", "NoMover", mover, h.NoMover},
		{"driver.GuardedMover", "NoGuards", guards, cmp.Or(h.NoGuards, h.NoMover)},
		{"driver.Bulk", "NoBulk", bulk, cmp.Or(h.NoBulk, h.NoMover)},
	} {
		switch {
		case !c.offered && c.reason == "":
			t.Fatalf("conformance: the backend is no %s and Harness.%s does not say why", c.name, c.field)
		case c.offered && c.reason != "":
			t.Fatalf("conformance: the backend is a %s although Harness.%s says: %s", c.name, c.field, c.reason)
		}
	}
	if err := s.b.Close(); err != nil {
		t.Fatalf("conformance: closing a store: %v", err)
	}
}

// exemptMovers exempts a backend from the cases of migration parts that it lacks. Check uses it, because its users did not write
// the adapter and cannot give a reason.
func exemptMovers(h *Harness, t testing.TB) {
	t.Helper()
	s := newSuite(h, t)
	_, mover := storage.As[driver.Mover](s.b)
	_, guards := storage.As[driver.GuardedMover](s.b)
	_, bulk := storage.As[driver.Bulk](s.b)
	for _, c := range []struct {
		name    string
		offered bool
		reason  *string
	}{
		{"driver.Mover", mover, &h.NoMover},
		{"driver.GuardedMover", guards, &h.NoGuards},
		{"driver.Bulk", bulk, &h.NoBulk},
	} {
		if !c.offered && *c.reason == "" {
			*c.reason = "the backend is no " + c.name
		}
	}
}
