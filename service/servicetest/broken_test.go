package servicetest

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/testrun"
)

// A defect is a server that is wrong in one way, with the case that has to find it and what it has to say.
type defect struct {
	bug   string
	by    string // topic/case
	says  string // a regular expression
	fault *fault
}

// TestDefects proves the suite: each defect has to be found by the case that is there for it.
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
					// Those that take luck get several chances.
					var said string
					for attempt := range 10 {
						if said = trialOf(t.Context(), c, d.fault, 2*time.Second); said != "" && regexp.MustCompile(d.says).MatchString(said) {
							t.Logf("found in attempt %d", attempt+1)
							return
						}
					}
					t.Errorf("not found, or for another reason, which was: %s", said)
				})
			}
		})
	}
}

// trialOf runs a case in memory against a fault and returns what it said was wrong.
func trialOf(ctx context.Context, c testCase, f *fault, patience time.Duration) string {
	h := Harness{Open: func(testing.TB) storage.Backend { return inmem.New(nil) }, Patience: patience, fault: f}
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
	t.Fatalf("no case is called %s", name)
	return testCase{}
}

// Every case is there because of a defect that it finds, and every rule has a case.
func TestEveryCaseFindsSomething(t *testing.T) {
	t.Parallel()
	ruled := map[int]bool{}
	for _, topic := range topics {
		for _, c := range topic.cases {
			name := topic.name + "/" + c.name
			if !slices.ContainsFunc(defects, func(d defect) bool { return d.by == name }) {
				t.Errorf("%s finds no defect", name)
			}
			if len(c.rules) == 0 {
				t.Errorf("%s belongs to no rule", name)
			}
			for _, rule := range c.rules {
				ruled[rule] = true
			}
		}
	}
	for rule := 1; rule <= len(rules); rule++ {
		if !ruled[rule] {
			t.Errorf("no case is there for rule %d: %s", rule, rules[rule-1])
		}
	}
	if len(ruled) != len(rules) {
		t.Errorf("the cases are there for %d rules, and there are %d", len(ruled), len(rules))
	}
}

// capable are cases that look at what the store can do; all of the history service do.
var capable = []string{"Pages", "Cursors", "AfterACursor", "Filters", "Resume"}

// A defect must not be found merely because its case runs outside of go test, or over a backend without capabilities.
func TestNoDefect(t *testing.T) {
	t.Parallel()
	for what, f := range map[string]*fault{"none": {},
		"no capabilities": {backend: backend(func(*shaky) {}), reaped: backend(func(*shaky) {})}} {
		for _, topic := range topics {
			for _, c := range topic.cases {
				if c.alone || c.name == "ThreeLevels" || what != "none" && (slices.Contains(capable, c.name) || topic.name == "History") {
					continue
				}
				t.Run(what+", "+topic.name+"/"+c.name, func(t *testing.T) {
					t.Parallel()
					if said := trialOf(t.Context(), c, f, time.Minute); said != "" {
						t.Error(said)
					}
				})
			}
		}
	}
}
