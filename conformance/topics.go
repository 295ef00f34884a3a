package conformance

import (
	"testing"

	"github.com/ashlar-dev/storage"
)

// Run runs the whole suite against h. Each case is a subtest named topic/case with a store of its own; cases of a topic run
// in parallel. Run returns when all are done. Call it from a test that is not parallel itself, or the search for leaked
// goroutines may find those of its neighbours.
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
					if !c.alone {
						t.Parallel()
					}
					runCase(&h, t, c)
				})
			}
		})
	}
}

// topics is the suite.
var topics = []topic{
	leakCases,
	writeCases,
	deleteCases,
	readCases,
	versionCases,
	listCases,
	keyCases,
	groupVersionCases,
	ownerCases,
	pagingCases,
	cursorCases,
	snapshotCases,
	joinCases,
	orderCases,
	watcherCases,
	bookmarkCases,
	boundCases,
	closingCases,
	consistencyCases,
	aliasingCases,
	limitCases,
	payloadCases,
	concurrencyCases,
	linearizableCases,
	historyCases,
	historianCases,
	deadlineCases,
	urlCases,
	commitCases,
}

// probe opens a store, as a first sign of life, and holds its capabilities against what the harness says.
func probe(h *Harness, t testing.TB) {
	t.Helper()
	s := newSuite(h, t)
	_, pager := storage.As[storage.Pager](s.b)
	_, resumer := storage.As[storage.Resumer](s.b)
	_, transactor := storage.As[storage.Transactor](s.b)
	_, historian := storage.As[storage.Historian](s.b)
	for _, c := range []struct {
		name, field string
		offered     bool
		reason      string
	}{
		{"Pager", "NoPager", pager, h.NoPager},
		{"Resumer", "NoResumer", resumer, h.NoResumer},
		{"Transactor", "NoTransactor", transactor, h.NoTransactor},
		{"Historian", "NoHistorian", historian, h.NoHistorian},
	} {
		switch {
		case !c.offered && c.reason == "":
			t.Fatalf("conformance: the backend is no storage.%s and Harness.%s does not say why", c.name, c.field)
		case c.offered && c.reason != "":
			t.Fatalf("conformance: the backend is a storage.%s although Harness.%s says: %s", c.name, c.field, c.reason)
		}
	}
	if err := s.b.Close(); err != nil {
		t.Fatalf("conformance: closing a store: %v", err)
	}
}
