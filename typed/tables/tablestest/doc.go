// Package tablestest tests package tables on every backend with the rules S1 to S9. It contains only tests.
//
// Each rule gets a new, empty database and two stores on two handles, which write concurrently. An exemption is a sentence with the reason, and is
// printed.
//
// No check depends on a clock. Load provokes races, so a run may miss a defect but never reports a false one. For every rule there is a broken store
// that the rule must detect.
package tablestest
