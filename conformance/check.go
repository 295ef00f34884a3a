package conformance

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/internal/testrun"
)

// Options are the settings of Check. Zero values are the defaults.
type Options struct {
	// Run selects cases by topic/case; nil selects all.
	Run *regexp.Regexp

	// Parallel is the number of cases that run concurrently. The default is 4.
	Parallel int

	// Progress is called after each case with the number of finished cases and the number of all cases. It is never called
	// concurrently.
	Progress func(r Result, done, of int)
}

// Report is the result of Check.
type Report struct {
	// Results has all selected cases, in the order of the suite.
	Results []Result
}

// Result is the result of a case.
type Result struct {
	// Case is the name of the case, as topic/case.
	Case string
	// NotRun is the reason why the case was omitted; "" if it ran.
	NotRun string
	// Failure is the error of the case; "" if it passed.
	Failure string
	// Log is everything else that the case logged.
	Log string
	// Took is the duration of the case.
	Took time.Duration
}

// Check runs the suite against h as Run does, but outside of go test: for programs with which users check a database. It returns an
// error if the suite could not run to its end, because of the harness, because no store can be opened, or because ctx ended; then
// the report has the finished cases. A failed case is not an error; it is in the report.
//
// In a program that is not a test, the first call initializes package testing, which registers that package's flags.
func Check(ctx context.Context, h Harness, o Options) (*Report, error) {
	initTesting()
	if r := attempt(ctx, "Probe", func(t testing.TB) { h.complete(t); exemptMovers(&h, t); probe(&h, t) }, time.Minute); r.Failure != "" {
		if ctx.Err() != nil {
			return &Report{}, context.Cause(ctx)
		}
		return &Report{}, errors.New(r.Failure)
	}
	c := &checkRun{h: &h, o: o, report: &Report{}}
	var alone, beside []int
	for _, topic := range topics {
		for _, tc := range topic.cases {
			name := topic.name + "/" + tc.name
			if o.Run != nil && !o.Run.MatchString(name) {
				continue
			}
			i := len(c.cases)
			c.cases = append(c.cases, tc)
			c.report.Results = append(c.report.Results, Result{Case: name, NotRun: h.exempt(tc.needs)})
			if tc.exclusive {
				alone = append(alone, i)
			} else {
				beside = append(beside, i)
			}
		}
	}
	for _, i := range alone {
		c.run(ctx, i)
	}
	work := make(chan int)
	var workers sync.WaitGroup
	for range max(1, o.parallel()) {
		workers.Go(func() {
			for i := range work {
				c.run(ctx, i)
			}
		})
	}
	for _, i := range beside {
		work <- i
	}
	close(work)
	workers.Wait()
	return c.report, context.Cause(ctx)
}

func (o *Options) parallel() int {
	if o.Parallel == 0 {
		return 4
	}
	return o.Parallel
}

// initTesting makes package testing usable in a program that is not a test.
var initTesting = sync.OnceFunc(func() {
	if testing.Testing() {
		return
	}
	testing.Init()
	if !flag.Parsed() {
		_ = flag.CommandLine.Parse(nil) // cannot fail without arguments
	}
})

// checkRun is the state of a call of Check.
type checkRun struct {
	h      *Harness
	o      Options
	cases  []testCase
	report *Report

	mu            sync.Mutex
	finishedCases int
}

// run runs the case of a number, unless it is exempt or ctx has ended.
func (c *checkRun) run(ctx context.Context, i int) {
	r := c.report.Results[i]
	switch {
	case r.NotRun != "":
	case ctx.Err() != nil:
		r.NotRun = interruptReason
	default:
		r = checkCase(ctx, c.h, r.Case, c.cases[i])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Results[i] = r
	c.finishedCases++
	if c.o.Progress != nil {
		c.o.Progress(r, c.finishedCases, len(c.cases))
	}
}

const interruptReason = "interrupted"

// checkCase runs one case on a new store and returns its result.
func checkCase(ctx context.Context, h *Harness, name string, c testCase) Result {
	return attempt(ctx, name, func(t testing.TB) { runCase(h, t, c) }, h.caseTime())
}

// abandonAfter is the time that a case may take to end after the end of its context.
const abandonAfter = 30 * time.Second

// attempt runs f as a test of this name. A failure after the end of ctx counts as interrupted.
func attempt(ctx context.Context, name string, f func(testing.TB), timeout time.Duration) Result {
	began := time.Now()
	limit, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	t := testrun.New(limit, name)
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.Run(func() { f(t) })
	}()
	select {
	case <-done:
	case <-limit.Done():
		timer := time.NewTimer(abandonAfter)
		defer timer.Stop()
		select {
		case <-done:
		case <-timer.C:
			t.Errorf("it does not end, %v after its context did", abandonAfter)
		}
	}
	got := t.Outcome()
	r := Result{Case: name, NotRun: got.Skipped, Failure: got.Failure, Log: got.Log, Took: time.Since(began)}
	if ctx.Err() != nil && r.Failure != "" {
		return Result{Case: name, NotRun: interruptReason, Log: r.Failure, Took: r.Took}
	}
	if limit.Err() != nil && r.Failure != "" {
		r.Failure = fmt.Sprintf("%s\n(after %v)", r.Failure, timeout)
	}
	return r
}
