package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is what a run found.
type Report struct {
	// Seed of the run.
	Seed uint64
	// WorkTime is how long workers worked.
	WorkTime time.Duration
	// Rounds that were finished.
	Rounds int
	// Operations counts the calls by kind.
	Operations map[string]int
	// Events counts what watches showed.
	Events int
	// Faults counts what befell the database.
	Faults map[Kind]int
	// Exempt are the faults that the database cannot suffer, and why.
	Exempt map[Kind]string
	// Unknown counts the calls whose outcome the caller was not told, UnknownApplied those of them that had happened after all.
	Unknown, UnknownApplied int
	// RelistedWatches counts, over the rounds, the watches that had to list again because history was gone. UnwitnessedRounds counts the rounds
	// in which that befell all of them: what calls were told in these is held against nothing but what other calls were told.
	RelistedWatches, UnwitnessedRounds int
	// Views counts what scans and swaps showed of the store at some revision, ReplayedViews those of them that were held against all changes
	// up to it. History was compacted before the changes up to the others were told.
	Views, ReplayedViews int
	// UndecidedWindows counts the windows of a key's history that the searching checker did not finish in time.
	UndecidedWindows int
	// LongestStall is the longest time in which no call at all succeeded.
	LongestStall time.Duration
	// Violations are the promises that were broken; none is what one hopes for.
	Violations []Violation
	// Files are what was written about a violation.
	Files []string
}

// Violation is a promise that was broken.
type Violation struct {
	// Check that found it.
	Check string
	// Text is the shortest piece of history that shows it, in words.
	Text string
}

func (v Violation) String() string { return v.Check + ": " + v.Text }

// Total is the number of calls.
func (r *Report) Total() (n int) {
	for _, count := range r.Operations {
		n += count
	}
	return n
}

// String is the report as text.
func (r *Report) String() string {
	var s strings.Builder
	r.summary(&s)
	for _, v := range r.Violations {
		fmt.Fprintf(&s, "VIOLATION %v\n", v)
	}
	for _, f := range r.Files {
		fmt.Fprintf(&s, "written: %s\n", f)
	}
	return s.String()
}

// summary is what there is to say about a run besides what it violated.
func (r *Report) summary(s *strings.Builder) {
	fmt.Fprintf(s, "seed %d: %d operations and %d events in %v, %d rounds; %d outcomes unknown, of which %d had happened; longest stall %v\n",
		r.Seed, r.Total(), r.Events, r.WorkTime.Round(time.Second), r.Rounds, r.Unknown, r.UnknownApplied, r.LongestStall.Round(time.Millisecond))
	fmt.Fprintf(s, "operations: %s\n", counts(r.Operations))
	fmt.Fprintf(s, "faults: %s\n", counts(r.Faults))
	if r.RelistedWatches > 0 {
		fmt.Fprintf(s, "watches that had to list again after a compaction: %d; rounds in which all had to: %d\n", r.RelistedWatches, r.UnwitnessedRounds)
	}
	if r.Views > 0 {
		fmt.Fprintf(s, "views of the store at a revision: %d, of which %d were held against all changes up to it\n", r.Views, r.ReplayedViews)
	}
	if r.UndecidedWindows > 0 {
		fmt.Fprintf(s, "windows that the searching checker did not finish: %d\n", r.UndecidedWindows)
	}
	fmt.Fprintf(s, "violations: %d\n", len(r.Violations))
}

func counts[K ~string](m map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		parts = append(parts, fmt.Sprintf("%s %d", k, m[k]))
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}
