package faults

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/leaks"
)

// Run runs workers, followers and faults on the store of the harness and checks the result. It returns an error if the run was
// not possible: because of the harness, or because ctx ended. Violations of the contract are in the report. The first round
// with a violation is the last.
func Run(ctx context.Context, h Harness, o Options) (*Report, error) {
	if err := h.complete(); err != nil {
		return nil, err
	}
	o.complete()
	r := &run{
		clock: &clock{start: time.Now()}, h: h, o: o,
		report: &Report{Seed: o.Seed, Operations: map[string]int{}, Faults: map[Kind]int{}, Exempt: h.Exempt},
	}
	var before goleak.Option
	if !o.NoLeakCheck {
		var err error
		if before, err = leaks.IgnoreCurrent(); err != nil {
			return nil, err
		}
	}
	err := openHandles(ctx, r)
	if err == nil {
		err = playAll(ctx, r)
	}
	for i, b := range r.handles {
		if closeErr := b.Close(); closeErr != nil && err == nil {
			err = fmt.Errorf("faults: closing handle %d: %w", i, closeErr)
		}
	}
	if err == nil {
		err = ctx.Err()
	}
	if err == nil {
		addViolations(r, checkBounds(r, before))
	}
	return r.report, err
}

// openHandles opens the handles of the run.
func openHandles(ctx context.Context, r *run) error {
	for i := range r.o.Handles {
		open := r.h.Open
		if i == 0 {
			open = r.h.Around
		}
		b, err := open(ctx)
		if err != nil {
			return fmt.Errorf("faults: opening handle %d: %w", i, err)
		}
		r.handles = append(r.handles, b)
		if err := checkCapability(r, i, b); err != nil {
			return err
		}
	}
	return nil
}

// checkCapability returns an error if a handle of this process is no history.Historian and the harness gives no reason, or if it is
// one although the harness gives a reason.
func checkCapability(r *run, handle int, b storage.Backend) error {
	if _, remote := b.(*process); remote { // its capabilities are those of the other process
		return nil
	}
	switch _, ok := storage.As[history.Historian](b); {
	case !ok && r.h.NoHistorian == "":
		return fmt.Errorf("faults: handle %d is no history.Historian: give the reason in Harness.NoHistorian", handle)
	case ok && r.h.NoHistorian != "":
		return fmt.Errorf("faults: handle %d is a history.Historian although Harness.NoHistorian says: %s", handle, r.h.NoHistorian)
	}
	return nil
}

// playAll plays the rounds, with followers that watch all of them.
func playAll(ctx context.Context, r *run) error {
	within, cancel := context.WithCancel(ctx)
	var background sync.WaitGroup
	defer background.Wait()
	defer cancel()
	background.Go(func() { r.clock.run(within) })
	first := newRound(r, 0)
	var followers []*follower
	for i, f := range []*follower{
		{name: "steady follower"},
		{name: "disturbed follower", slow: true},
		{name: "resuming follower", resumes: 60},
		{name: "roaming follower", resumes: 40, roams: true},
	} {
		if r.h.NoResumer != "" {
			f.resumes = 0
		}
		f.run, f.handle, f.random = r, i%len(r.handles), r.source(f.name)
		var err error
		if f.watch, err = r.handles[f.handle].WatchList(ctx, thing, allTenancies, ""); err != nil {
			return fmt.Errorf("faults: WatchList on handle %d: %w", f.handle, err)
		}
		if err := f.begin(ctx); err != nil {
			return err
		}
		f.enterRound(first)
		background.Go(func() { f.follow(within) })
		followers = append(followers, f)
	}
	return playRounds(ctx, r, first, followers)
}

// playRounds plays rounds until their work time reaches Options.For or a round finds a violation.
func playRounds(ctx context.Context, r *run, current *round, followers []*follower) error {
	for r.report.WorkTime < r.o.For && ctx.Err() == nil {
		worked, err := playRound(ctx, current, followers, min(r.o.Round, r.o.For-r.report.WorkTime))
		if err != nil {
			return err
		}
		r.report.WorkTime += worked
		next := newRound(r, current.number+1)
		var observations []observation
		for _, f := range followers {
			observations = append(observations, f.enterRound(next))
		}
		e := collectEvidence(r, current, observations)
		countRound(r, e)
		if found := findViolations(e); len(found) > 0 {
			addViolations(r, found)
			writeRound(r, e)
			return nil
		}
		r.o.Log("round %d: %d calls, %d events, %d faults, no violation", current.number, len(e.calls), len(e.witness.events), len(e.faults))
		if err := cleanUp(ctx, current); err != nil {
			return err
		}
		current = next
	}
	addViolations(r, current.copy().reports)
	return nil
}

// countRound adds a round to the report.
func countRound(r *run, e *evidence) {
	report := r.report
	report.Rounds++
	report.Events += len(e.witness.events)
	for _, k := range e.calls {
		report.Operations[k.kind]++
		if k.changes() && k.outcome == outcomeUnknown {
			report.Unknown++
			if e.appliedCalls[k] {
				report.UnknownApplied++
			}
		}
	}
	for _, f := range e.faults {
		report.Faults[f.kind]++
	}
	if e.hasGap(e.witness) {
		report.UnwitnessedRounds++
	}
	report.Views += len(e.views)
	report.ReplayedViews += countReplayed(e)
	for _, s := range e.observations {
		if e.hasGap(s) {
			report.RelistedWatches++
		}
	}
	report.LongestStall = max(report.LongestStall, longestStall(e))
}

// longestStall returns the longest time without a successful call.
func longestStall(e *evidence) (longest time.Duration) {
	var ends []time.Duration
	for _, k := range e.calls {
		if k.outcome == outcomeDone {
			ends = append(ends, k.returnTime)
		}
	}
	slices.Sort(ends)
	for i := 1; i < len(ends); i++ {
		longest = max(longest, ends[i]-ends[i-1])
	}
	return longest
}

// countReplayed counts the views that a follow log covers.
func countReplayed(e *evidence) (n int) {
	for _, v := range e.views {
		if slices.ContainsFunc(e.round.logs(), func(c *followLog) bool { return c.covers(v.revision) }) {
			n++
		}
	}
	return n
}

// Test calls Run in a test and reports every violation, and every undecided window, as an error of t. It must not run in parallel with
// other tests of its process, because the search for remaining goroutines would find theirs.
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
	if report.UndecidedWindows > 0 {
		t.Errorf("seed %d: porcupine did not finish %d windows in time", report.Seed, report.UndecidedWindows)
	}
	t.Log(report)
	return report
}
