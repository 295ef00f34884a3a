package faults

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Report is the result of a run.
type Report struct {
	// Seed is the seed of the run.
	Seed uint64
	// WorkTime is the working time of the workers.
	WorkTime time.Duration
	// Rounds is the number of finished rounds.
	Rounds int
	// Operations counts the calls by kind.
	Operations map[string]int
	// Events counts the events of watches.
	Events int
	// Faults counts the injected faults.
	Faults map[Kind]int
	// Exempt contains the kinds of faults that the database cannot suffer, with the reasons.
	Exempt map[Kind]string
	// Unknown counts the calls with an unknown outcome, UnknownApplied the calls among them that took effect.
	Unknown, UnknownApplied int
	// RelistedWatches counts, over the rounds, the watches that listed again because history was compacted. UnwitnessedRounds
	// counts the rounds with no other watches. The answers in these rounds are compared with other answers only.
	RelistedWatches, UnwitnessedRounds int
	// Views counts the views of the store at a revision, from scans and swaps. ReplayedViews counts the views that were
	// compared with all changes up to their revision; for the others, history was compacted first.
	Views, ReplayedViews int
	// UndecidedWindows counts the windows of a key's history that porcupine did not finish in time.
	UndecidedWindows int
	// LongestStall is the longest time without a successful call.
	LongestStall time.Duration
	// Violations are the violations of the contract. A good run has none.
	Violations []Violation
	// Files are the names of the files about a violation.
	Files []string
}

// Violation is a broken promise.
type Violation struct {
	// Check is the name of the check that found it.
	Check string
	// Text describes the shortest part of the history that shows it.
	Text string
}

func (v Violation) String() string { return v.Check + ": " + v.Text }

// Total returns the number of calls.
func (r *Report) Total() (n int) {
	for _, count := range r.Operations {
		n += count
	}
	return n
}

// String returns the report as text.
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

// summary writes the report without its violations.
func (r *Report) summary(s *strings.Builder) {
	fmt.Fprintf(s, "seed %d: %d operations and %d events in %v, %d rounds; %d outcomes unknown (%d took effect); longest stall %v\n",
		r.Seed, r.Total(), r.Events, r.WorkTime.Round(time.Second), r.Rounds, r.Unknown, r.UnknownApplied, r.LongestStall.Round(time.Millisecond))
	fmt.Fprintf(s, "operations: %s\n", counts(r.Operations))
	fmt.Fprintf(s, "faults: %s\n", counts(r.Faults))
	if r.RelistedWatches > 0 {
		fmt.Fprintf(s, "watches that listed again after a compaction: %d; rounds where all watches did: %d\n", r.RelistedWatches, r.UnwitnessedRounds)
	}
	if r.Views > 0 {
		fmt.Fprintf(s, "views of the store at a revision: %d (%d compared with all changes up to it)\n", r.Views, r.ReplayedViews)
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
