// Package storetest is what tests of all packages need to use a store: resources to write, calls that fail the test instead of
// returning an error, and a way to wait for a condition.
//
// Every call is bounded by [Patience], so that a test that waits in vain says what for.
package storetest
