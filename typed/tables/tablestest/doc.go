// Package tablestest tests package tables over every backend: rules S1 to S8. It has no code outside of its tests.
//
// Each rule gets a new, empty database and two stores on two handles of it, which write at the same time. An exemption is a sentence that
// gives the reason, and is printed.
//
// No check reads a clock. Races are provoked by load, so a run may miss a fault, but reports none that is not there. The suite's own tests
// hold a broken store for every rule, which that rule finds.
package tablestest
