package conformance

import (
	"cmp"
	"fmt"
	"reflect"
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
	requireReason[storage.Pager](s, "NoPager", h.NoPager)
	requireReason[storage.Resumer](s, "NoResumer", h.NoResumer)
	requireReason[storage.Transactor](s, "NoTransactor", h.NoTransactor)
	requireReason[history.Historian](s, "NoHistorian", h.NoHistorian)
	requireReason[driver.Mover](s, "NoMover", h.NoMover)
	requireReason[driver.GuardedMover](s, "NoGuards", cmp.Or(h.NoGuards, h.NoMover))
	requireReason[driver.Bulk](s, "NoBulk", cmp.Or(h.NoBulk, h.NoMover))
	if err := s.b.Close(); err != nil {
		t.Fatalf("conformance: closing a store: %v", err)
	}
}

// requireReason demands that a field of the harness gives a reason if and only if the backend lacks a capability.
func requireReason[T any](s *suite, field, reason string) {
	s.Helper()
	switch _, offered := storage.As[T](s.b); {
	case !offered && reason == "":
		s.Fatalf("conformance: the backend is no %v and Harness.%s does not say why", reflect.TypeFor[T](), field)
	case offered && reason != "":
		s.Fatalf("conformance: the backend is a %v although Harness.%s says: %s", reflect.TypeFor[T](), field, reason)
	}
}

// exemptMovers exempts a backend from the cases of migration parts that it lacks. Check uses it, because its users did not write
// the adapter and cannot give a reason.
func exemptMovers(h *Harness, t testing.TB) {
	t.Helper()
	s := newSuite(h, t)
	exemptIfMissing[driver.Mover](s, &h.NoMover)
	exemptIfMissing[driver.GuardedMover](s, &h.NoGuards)
	exemptIfMissing[driver.Bulk](s, &h.NoBulk)
}

func exemptIfMissing[T any](s *suite, reason *string) {
	if _, offered := storage.As[T](s.b); !offered && *reason == "" {
		*reason = fmt.Sprintf("the backend is no %v", reflect.TypeFor[T]())
	}
}
