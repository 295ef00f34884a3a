package servicetest

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
)

// Harness configures the stores and the transport of a run of the suite.
type Harness struct {
	// Open returns a handle on a new, empty store. The suite closes the handle. The harness removes the store itself,
	// with t.Cleanup.
	Open func(t testing.TB) storage.Backend

	// Transport connects clients and servers. Nil is Local.
	Transport Transport

	// Restore restores an earlier state of the store of b, a result of Open, while b is open. If it is nil because restoring needs another
	// handle, the suite simulates a watch that ends after a restore.
	Restore func(t testing.TB, b storage.Backend)

	// Slow means that a write takes milliseconds: cases with many writes do a quarter of them.
	Slow bool

	// Timeout is the maximum wait for an expected event. 0 means a minute.
	Timeout time.Duration

	// fault is the bug of the suite's servers, for the tests of the suite.
	fault *fault
}

// Run runs the suite against h. Each case is a subtest named topic/case with its own store; the cases of a topic run in parallel.
// Run returns when all cases are done. Call it from a test that is not parallel, or the search for leaked goroutines may find
// goroutines of other tests.
func Run(t *testing.T, h Harness) {
	t.Helper()
	if h.Open == nil {
		t.Fatal("servicetest: Harness.Open is not set")
	}
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
		h.Timeout = time.Minute
	}
	if h.fault == nil {
		h.fault = &fault{}
	}
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
