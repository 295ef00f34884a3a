package servicetest

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/test/stores"
	"github.com/ashlar-dev/storage/internal/testrun"
)

// defect is a server with one bug, with the case that must find it and the expected failure.
type defect struct {
	bug   string
	by    string // topic/case
	text  string // a regular expression
	fault *fault
}

// TestDefects tests the suite: each defect must be found by its case.
func TestDefects(t *testing.T) {
	testEnds = make(chan struct{})
	t.Cleanup(func() { close(testEnds) })
	for _, alone := range []bool{true, false} {
		t.Run(map[bool]string{true: "Alone", false: "Parallel"}[alone], func(t *testing.T) {
			for _, d := range defects {
				c := caseNamed(t, d.by)
				if c.alone != alone {
					continue
				}
				t.Run(d.bug+", "+d.by, func(t *testing.T) {
					if !alone {
						t.Parallel()
					}
					// Races may need several attempts.
					var failure string
					for attempt := range 10 {
						if failure = trialOf(t.Context(), c, d.fault, 2*time.Second); failure != "" && regexp.MustCompile(d.text).MatchString(failure) {
							t.Logf("found in attempt %d", attempt+1)
							return
						}
					}
					t.Errorf("not found, or with another failure: %s", failure)
				})
			}
		})
	}
}

// trialOf runs a case in memory against a fault and returns the failure.
func trialOf(ctx context.Context, c testCase, f *fault, timeout time.Duration) string {
	h := Harness{Harness: stores.Memory, fault: f}
	h.Timeout = timeout
	h.complete()
	r := testrun.New(ctx, c.name)
	r.Run(func() { c.run(h.suite(r)) })
	return r.Outcome().Failure
}

func caseNamed(t *testing.T, name string) testCase {
	t.Helper()
	for _, topic := range topics {
		for _, c := range topic.cases {
			if topic.name+"/"+c.name == name {
				return c
			}
		}
	}
	t.Fatalf("unknown case %s", name)
	return testCase{}
}

// Every case finds a defect, and every rule has a case.
func TestEveryCaseFindsADefect(t *testing.T) {
	t.Parallel()
	ruled := map[int]bool{}
	for _, topic := range topics {
		for _, c := range topic.cases {
			name := topic.name + "/" + c.name
			if !slices.ContainsFunc(defects, func(d defect) bool { return d.by == name }) {
				t.Errorf("%s finds no defect", name)
			}
			if len(c.rules) == 0 {
				t.Errorf("%s has no rule", name)
			}
			for _, rule := range c.rules {
				ruled[rule] = true
			}
		}
	}
	for rule := 1; rule <= len(rules); rule++ {
		if !ruled[rule] {
			t.Errorf("no case tests rule %d: %s", rule, rules[rule-1])
		}
	}
	if len(ruled) != len(rules) {
		t.Errorf("the cases test %d rules, expected %d", len(ruled), len(rules))
	}
}

// capable are the cases that need capabilities of the store, besides all cases of History.
var capable = []string{"Pages", "Cursors", "AfterACursor", "Filters", "Resume"}

// Without a defect, a case must not fail outside of go test or over a backend without capabilities.
func TestNoDefect(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]*fault{"none": {},
		"no capabilities": {backend: backend(func(*shaky) {}), reaped: backend(func(*shaky) {})}} {
		for _, topic := range topics {
			for _, c := range topic.cases {
				if c.alone || c.name == "ThreeLevels" || name != "none" && (slices.Contains(capable, c.name) || topic.name == "History") {
					continue
				}
				t.Run(name+", "+topic.name+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					if failure := trialOf(t.Context(), c, f, time.Minute); failure != "" {
						t.Error(failure)
					}
				})
			}
		}
	}
}
