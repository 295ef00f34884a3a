package faults

import "testing"

// Test is Run as a test: every violation is an error of t. It must not be parallel with others in its process, or the search
// for goroutines that are left may find theirs.
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
