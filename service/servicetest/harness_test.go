package servicetest

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance"
)

// Harness configures the stores and the transport of a run of the suite. Of the harness of the backend, the suite uses the functions that open and
// back up stores, Slow, and Timeout, which is 3 minutes unless it is set.
type Harness struct {
	conformance.Harness

	// Transport connects clients and servers. Nil is Local.
	Transport Transport

	// fault is the bug of the suite's servers, for the tests of the suite.
	fault *fault
}

// Run runs the suite against h. Each case is a subtest named topic/case with its own store; the cases of a topic run in parallel.
// Run returns when all cases are done. Call it from a test that is not parallel, or the search for leaked goroutines may find
// goroutines of other tests.
func Run(t *testing.T, h Harness) {
	t.Helper()
	h.complete()
	for _, topic := range topics {
		t.Run(topic.name, func(t *testing.T) {
			for _, c := range topic.cases {
				t.Run(c.name, func(t *testing.T) {
					if !c.alone {
						t.Parallel()
					}
					c.explain(t)
					c.run(h.suite(t))
				})
			}
		})
	}
}

// complete sets defaults.
func (h *Harness) complete() {
	if h.Transport == nil {
		h.Transport = Local
	}
	if h.Timeout == 0 {
		h.Timeout = 3 * time.Minute // the machine may be busy with databases
	}
	if h.fault == nil {
		h.fault = &fault{}
	}
}

// open returns a handle on a new, empty store.
func (h *Harness) open(t testing.TB) storage.Backend {
	t.Helper()
	_, open := h.Store(t)
	b, err := open(t.Context())
	if err != nil {
		t.Fatalf("open a store: %v", err)
	}
	return b
}

// topic has the cases of one file.
type topic struct {
	name  string
	cases []testCase
}

// testCase runs with an empty store and a server over it. It waits for conditions, never for a duration: expected events have
// Harness.Timeout, and a later event flushes out unexpected ones.
type testCase struct {
	name  string
	rules []int // the numbers of the rules that it tests
	alone bool  // does not run in parallel with other cases
	run   func(s *suite)
}

// explain logs the rules of the case if it fails.
func (c *testCase) explain(t testing.TB) {
	t.Cleanup(func() {
		for _, n := range c.rules {
			if t.Failed() {
				t.Logf("rule %d: %s", n, rules[n-1])
			}
		}
	})
}

// topics has all cases of the suite.
var topics = []topic{
	leavingCases,
	requestCases,
	readCases,
	writeCases,
	statusCases,
	listCases,
	ownedCases,
	deleteCases,
	accessCases,
	identityCases,
	contentionCases,
	markCases,
	tombstoneCases,
	cascadeCases,
	watchCases,
	viewCases,
	wildcardCases,
	historyCases,
	selectionCases,
	payloadCases,
	endingCases,
}
