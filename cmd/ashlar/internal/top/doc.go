// Package top shows the live state of a store: how many resources of each type exist, how fast they change, and the newest changes.
//
//	watch ──► Follow ──► Tally ──► Picture ──► Screen (a terminal) or Print (lines)
//
// A Tally counts and does not depend on terminals. A Picture is the state of a Tally at one moment.
package top
