package conformance

import "testing"

// A topic is the cases of one file.
type topic struct {
	name  string
	cases []testCase
}

// A testCase gets a suite with a new store. It does not sleep or read a clock. Harness.Timeout bounds the wait for everything
// that must happen. To prove that an event does not happen, a case waits for an event that must come after it.
type testCase struct {
	name      string
	needs     need
	exclusive bool // not beside other cases
	run       func(s *suite)
}

// runCase runs a case on a new store.
func runCase(h *Harness, t testing.TB, c testCase) {
	t.Helper()
	c.run(newSuite(h, t))
}
