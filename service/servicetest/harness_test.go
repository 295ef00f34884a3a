package servicetest

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
)

// Harness says over which stores the resource service is tested, and by which way clients reach it.
type Harness struct {
	// Open returns a handle on a new, empty store. The suite closes the handle. What the store itself leaves behind is for the harness to
	// remove, by t.Cleanup.
	Open func(t testing.TB) storage.Backend

	// Transport is the way between clients and servers. Nil is Local.
	Transport Transport

	// Restore puts back an earlier state of the store of b, which a call of Open returned, while b is open. Nil where that takes another
	// handle: then a watch that ends as after a restore stands in for it.
	Restore func(t testing.TB, b storage.Backend)

	// Slow says that a write takes milliseconds: the cases that need many make do with a quarter of them.
	Slow bool

	// Patience is how long the suite waits for something that has to happen; 0 means a minute.
	Patience time.Duration

	// fault is what is wrong with the servers of the suite, for its own tests.
	fault *fault
}

// Run runs the whole suite against h. Each case is a subtest named topic/case with a store of its own; cases of a topic run in parallel.
// Run returns when all are done. Call it from a test that is not parallel itself, or the search for leaked goroutines may find those of its
// neighbours.
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

// complete fills in defaults.
func (h *Harness) complete() {
	if h.Transport == nil {
		h.Transport = Local
	}
	if h.Patience == 0 {
		h.Patience = time.Minute
	}
	if h.fault == nil {
		h.fault = &fault{}
	}
}

// A topic is the cases of one file.
type topic struct {
	name  string
	cases []testCase
}

// A testCase gets a suite with an empty store and a server over it. It waits for conditions and never for a while: whatever has to happen
// gets Harness.Patience, and whatever must not happen is flushed out by something that has to happen after it.
type testCase struct {
	name  string
	rules []int // the numbers of those that it is there for
	alone bool  // not beside other cases
	run   func(s *suite)
}

// explain says, if the case fails, which promises are broken.
func (c *testCase) explain(t testing.TB) {
	t.Cleanup(func() {
		for _, n := range c.rules {
			if t.Failed() {
				t.Logf("rule %d: %s", n, rules[n-1])
			}
		}
	})
}

// topics is the suite.
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
