// Package driver is the interface between a database and the storage contract.
//
// The author of an adapter implements [Driver]: one read, one write, one list, the children of an owner, and a [Source] of changes.
// Package driver/backend makes it a storage.Backend with pages, resumable watches, transactions and bookmarks. That package
// contains everything that does not depend on the database: checks of input, deadlines, the order and the text of errors, tokens,
// and the join of a snapshot with the following changes.
//
// A resource that is passed to a Driver belongs to the caller of the backend: the driver neither changes nor keeps it. A resource
// that a Driver returns belongs to the caller of the Driver.
//
// Only the database can decide whether a mutation may happen. The driver therefore compares the stored resource with the expected
// one in the atomic step that makes the change, by [Mutation.Decide] or by an equivalent statement.
//
// # Opening
//
// An adapter registers an opener for the scheme of its URLs with storage.Register. Every adapter knows these parameters. It refuses
// unknown parameters and malformed values with storage.ErrInvalid and names the parameter:
//
//	max-size   the largest resource in bytes, backend.Options.MaxSize
//	timeout    a duration, backend.Options.Timeout
//	create     off: a missing store is storage.ErrNoStore; on: it is created
//
// The context of an opener bounds the opening only; the returned backend outlives it.
//
// # Optional parts
//
// A driver must be able to read listings for pages and for the snapshots of watches: it implements either [Historian] or both
// [Pager] and [Snapshotter], which the backend otherwise derives from Historian. It may also implement [Prover] on its Source
// (bookmarks), and [Mover], [GuardedMover] and [Bulk] (for live migrations: storage.As finds them in the backend, and package
// conformance tests them).
package driver
