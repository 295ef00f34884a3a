// Package servicetest tests the resource service over every backend and every transport: in the process, and over gRPC under both names of the
// service. It has test files only.
//
// Run a single case by its name:
//
//	go test -run 'TestService/SQLiteGRPC/Marks/Forbidden' ./service/servicetest
//
// # Topics
//
// A failed case logs the rules that are broken. Every topic has its file:
//
//	Leaving      disconnected clients leave nothing behind
//	Requests     ids, scopes, filters and defaults, the order of checks, and that messages are not shared
//	Read         stored and absent resources
//	Write        creation, updates, payloads, owners, tenancies marked for deletion, and MutateAndValidate
//	WriteStatus  replaced and rejected statuses
//	List         filters, group versions, pages, and visibility
//	ListByOwner  the same for owned resources
//	Delete       deletions and rejected deletions
//	Access       callers that are unknown, denied, or undecidable; the order of hooks
//	Identity     uids, owners, generations, and moves between group versions
//	Contention   concurrent writers
//	Marks        deferred deletion, by finalizers
//	Tombstones   the tombstones of deletions
//	Cascade      package reaper: the children of deleted resources
//	Watch        snapshots, changes, cursors, states before, bookmarks, restores
//	Views        resources that leave the view of a stream
//	Wildcards    names with wildcards: reads of any version, lists, pages and streams of many types
//	History      the history service: stores with a history, and its visibility
//	Selection    streams of selected changes, with the state before each
//	Payload      unknown fields survive byte for byte
//	Endings      canceled and late calls, stores that do not respond, and closed stores
//
// Rejected calls are rows of tables, with the code and the text. The store is compared before and after each. Each request is compared with its
// state before the call.
//
// # Structure
//
// A case has its own store and runs in parallel with the others of its topic; only the search for leaked goroutines runs alone. No case sleeps:
// expected events have Harness.Timeout, and a later event flushes out unexpected ones.
//
// The suite itself is tested by some eighty servers with one bug each, which the intended case must find. A new case needs a server that only this
// case finds.
package servicetest
