package faults

import "testing"

// Test calls Run in a test and reports every violation as an error of t. It must not run in parallel with other tests of its
// process, because the search for remaining goroutines would find theirs.
func Test(t *testing.T, h Harness, o Options) *Report {
	t.Helper()
	if o.Log == nil {
		o.Log = t.Logf
	}
	report, err := Run(t.Context(), h, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range report.Violations {
		t.Errorf("seed %d: %v", report.Seed, v)
	}
	t.Log(report)
	return report
}
