// Package conformance is the test suite of storage backends. It is written for authors of adapters and of layers around them, in this
// repository and outside.
//
// # Use
//
// The test of an adapter that is registered with [storage.Open] is a few lines:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			URL: func(t testing.TB) string { return "mydb://" + newSchema(t) },
//		})
//	}
//
// URL returns a new, empty store each time. The suite opens it as often as it needs, also several times at once. A layer, or an
// adapter without a URL, sets [Harness].Open, and Another for a second handle. The other fields of Harness name capabilities and
// promises that an adapter does not have. Each exemption is a sentence that says why, and the suite prints it; no case is skipped
// silently. The suite fails if an exemption contradicts the backend, as far as it can detect that.
//
// Run a single case by its name:
//
//	go test -run 'TestConformance/Watchers/Slow'
//
// [Check] runs the suite in a program that is not a test, as the command ashlar conformance does. [Guarantees] lists the promises of
// the contract with the cases for each.
//
// # Topics
//
// Each topic has a file, the place to read when a case fails:
//
//	Leaks          no goroutines remain after Close
//	Versions       any text is a legal version; no version is used twice after a restart or a restore
//	Keys           characters with a meaning in some database, keys of the largest size, byte order
//	Paging         storage.Pager
//	Cursors        storage.Resumer
//	Snapshot       a large snapshot of a watch
//	Watchers       slow watches, many watches, and calls beside Next
//	Bookmarks      storage.Bookmarker
//	Bounds         WatchEvent.more in large transactions
//	Closing        closing watches and backends, and contexts that end
//	Commit         limits of storage.Transactor
//	Aliasing       arguments and results belong to the caller
//	Limits         sizes and invalid input
//	Payload        unknown types and fields are unchanged
//	Histories      random sequences of calls against a model, shortened when they fail
//	Historian      limits, ranges, invalid input and compactions of history.Historian
//	Deadlines      cancelled contexts, contexts that end during a call, and short deadlines
//	URL            parameters of every adapter
//	Load           package faults without faults: many clients at once, and a check of everything that they saw
//	Damage         stored bytes that cannot be decoded (Harness.Replace)
//	Processes      pages and revisions in other processes (Harness.Processes)
//	Mover          driver.Mover, driver.GuardedMover and driver.Bulk
//
// The suite does not break a database. Restarts, cut connections and lost answers are tested by package conformance/faults, and by the
// adapter's own tests.
//
// # Structure
//
// A case gets a store of its own and runs in parallel with the other cases of its topic; only the search for leaked goroutines runs
// alone. No case sleeps or reads a clock. [Harness].Timeout, a minute, bounds the wait for everything that must happen; no healthy
// backend needs that long, even on a busy machine. To prove that an event does not happen, a case waits for an event that must come
// after it: if a deletion were announced twice, for example, the second announcement would come before the event of the next creation.
//
// The tests of the suite run it against a plain reference backend with more than a hundred planted defects. Each defect must be found
// by its case. A new case needs a defect that only this case finds.
package conformance
