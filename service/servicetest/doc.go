// Package servicetest tests the resource service over every backend and every transport: in the process, and over gRPC under either name of
// the service. It has no code outside of its tests.
//
// A single case is run by its name:
//
//	go test -run 'TestService/Marks/Forbidden' ./service/servicetest
//
// # What is tested
//
// A case that fails says which promises are broken. Every topic has its file, which is the place to look:
//
//	Leaving      clients that disappear leave nothing behind
//	Requests     ids, scopes, filters and defaults, the order of checks, and that neither side changes what the other one has
//	Read         what is there, and what is not
//	Write        creation, updates, payloads, owners, tenancies marked for deletion, and MutateAndValidate
//	WriteStatus  what it replaces, and what it refuses
//	List         filters, group versions, pages, and who sees what
//	ListByOwner  the same of what a resource owns
//	Delete       what it deletes, and what it does not
//	Access       callers that are not known, or may not, or of whom nobody can say; the order of hooks
//	Identity     uids, owners, generations, and the way from one group version to the next
//	Contention   many writers at once
//	Marks        deferred deletion, by finalizers
//	Tombstones   what deletions leave
//	Cascade      package reaper: what a deleted resource owned
//	Watch        snapshots, changes, cursors, states before, bookmarks, restores
//	Views        what leaves the sight of a stream
//	Wildcards    names that stand for several types: reads of any version, lists, pages and streams of many types
//	History      the history service: the past of stores that have one, and what callers may see of it
//	Selection    streams of selected changes, with the state before each
//	Payload      what nobody knows comes back byte for byte
//	Endings      calls that are over, stores that do not answer, and stores that are closed
//
// Whatever is refused is refused by a row of a table, with the code and the text, and what the store holds is compared before and after.
// Each request is compared with what it was before its call.
//
// # How it is built
//
// A case gets a store of its own and runs beside the others of its topic; only the search for leaked goroutines runs alone. No case waits
// for a while: what has to happen gets Harness.Timeout, and what must not happen is flushed out by something that has to come after it.
//
// The suite is itself tested, by some eighty servers that are wrong in one way each: each has to be found by the case that is there for it.
// A new case needs a server that only it would find.
package servicetest
