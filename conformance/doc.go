// Package conformance is the test suite that a storage backend has to pass. It is written for authors of adapters and of layers
// around them, in this repository and outside.
//
// # Use
//
// The test file of an adapter that is registered with [storage.Open] is a few lines:
//
//	func TestConformance(t *testing.T) {
//		conformance.Run(t, conformance.Harness{
//			URL: func(t testing.TB) string { return "mydb://" + newSchema(t) },
//		})
//	}
//
// The URL names a new, empty store each time; the suite opens it as often as it needs, and several times at once. A layer, or
// an adapter without a URL, sets [Harness].Open instead, and Another for the second handle. Everything else in Harness is for
// what an adapter does not have or does not promise. Each exemption is a sentence that says why, and the suite prints it;
// nothing is skipped in silence. An exemption that is not needed fails the suite, where it can tell.
//
// A single case is run by its name:
//
//	go test -run 'TestConformance/Watchers/Slow'
//
// [Check] runs the suite in a program that is no test, as the command ashlar conformance does. [Guarantees] says what of the
// contract each case is there for.
//
// # What is tested
//
// Every topic has its file, which is the place to look when a case fails:
//
//	Leaks          nothing is left behind by Close
//	Write, Delete  the decision tables, row by row, and durability
//	Read           absence, uids, group versions, freshness of strong reads
//	Versions       any text is a legal version; none is used twice
//	List           filters with wildcards, order, one cut
//	Keys           characters that some database treats in its own way, keys of the largest size, byte order
//	GroupVersion   it is no part of the key
//	Owners         references by key and uid, and after the owner's deletion
//	Paging         storage.Pager
//	Cursors        storage.Resumer
//	Snapshot       what a watch begins with
//	Order          every version, once, in order, and the last of them with the deletion
//	Watchers       slow ones, many of them, and those that come and go
//	Bookmarks      storage.Bookmarker
//	Bounds         whether an event's commit goes on with the next
//	Closing        of watches, of backends, and contexts that end
//	Commit         storage.Transactor
//	Consistency    reads do not go back in time, nor behind what a watch has shown
//	Aliasing       what goes in and what comes out belongs to the caller
//	Limits         sizes, and input that is refused before the database is asked
//	Payload        what no program here knows comes back byte for byte
//	Load           package faults without faults: many clients at once, and all that they saw is checked
//	Histories      random sequences of calls against a model, shortened when they fail (rapid)
//	Deadlines      contexts that are over, contexts that end in the middle, and those that end too soon
//	URL            parameters that every adapter has
//	Damage         stored bytes that cannot be decoded (Harness.Replace)
//	Mover          driver.Mover, driver.GuardedMover, driver.BulkReader and driver.Loader
//
// What the suite cannot do is break a database: restarts, cut connections and lost answers are for package
// conformance/faults, and for the adapter's own tests.
//
// # How it is built
//
// A case gets a store of its own and runs beside the others of its topic; only the search for leaked goroutines runs alone.
// No case sleeps or looks at a clock. What has to happen gets [Harness].Patience, a minute, which no healthy backend comes near
// even on a busy machine. What must not happen is flushed out by something that has to come after it: whether a deletion
// was announced twice, say, shows when the same key is created again and the next event is not that. Under load each
// writer notes its successes in a journal, and every watch is held against it afterwards: which versions it has to show,
// in which order, and where it may have begun.
//
// The suite is itself tested: its tests hold a plain reference backend and some seventy defects, each of which has to be found by the
// case that is there for it. A new case needs a defect that only it would find.
package conformance
