// Package top is the live picture of a store: how many resources of which types there are, how fast they change, and what changed last.
//
//	watch ──► Follow ──► Tally ──► Picture ──► Screen (a terminal) or Print (lines)
//
// A Tally counts; it knows nothing of terminals. A Picture is what a Tally said at one moment.
package top
