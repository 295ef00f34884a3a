package conformance

import "testing"

// A topic is the cases of one file.
type topic struct {
	name  string
	cases []testCase
}

// A testCase gets a suite with a fresh store. It never looks at a clock: whatever has to happen gets Harness.Timeout, and
// whatever must not happen is flushed out by something that has to happen after it.
type testCase struct {
	name      string
	needs     need
	exclusive bool // not beside other cases
	run       func(s *suite)
}

// run runs one case on a fresh store.
func runCase(h *Harness, t testing.TB, c testCase) {
	t.Helper()
	c.run(newSuite(h, t))
}
