// Package driver is what a database has to bring to be a storage backend, and what is written once for all of them.
//
// An author implements [Driver]: one read, one write, one scan, the children of an owner, and a [Source] of changes. [New] makes it
// a storage.Backend with pages, resumable watches, transactions and bookmarks:
//
//	storage.Backend ──► New: input checks, lifetimes, deadlines, errors, copies, tokens, pages, watches
//	                       │
//	                       ▼
//	                    Driver: statements, encoding, stream ──► the database
//
// So that nothing is decided twice, the tier owns:
//
//   - the order of errors (storage.ErrClosed, then storage.ErrInvalid and storage.ErrTooLarge, then the context's), and the words
//     around an error: the operation and the key;
//   - deadlines: a context that reaches a Driver has one;
//   - whose a resource is: what a Driver is given belongs to the caller of the backend and is neither changed nor kept; what a
//     Driver returns belongs to the caller of the Driver;
//   - cursors and continue tokens, with the id of the store and a checksum;
//   - the join of a snapshot with the changes that follow it, for any number of watches over one Source.
//
// What a driver must decide by itself, because only its database can, is whether a mutation may happen: it compares what is stored
// with what the caller expects in the same atomic step as the change, by [Mutation.Decide] or by a statement that comes to the same.
//
// # Opening
//
// An adapter registers an opener for the scheme of its URLs with storage.Register. Every adapter knows these parameters, and refuses
// unknown ones and malformed values with storage.ErrInvalid, naming the parameter:
//
//	max-size   the largest resource in bytes, Options.MaxSize
//	timeout    a duration, Options.Timeout
//	create     off: a store that is not there is not made; on: it is
//
// An opener that opens by a context uses it for opening only: what it returns outlives the context.
//
// # Optional parts
//
// A driver may also implement [Lister] (a list that needs no position), [Historian] (the store as it was, of which pages and the snapshots
// of watches are made without a copy), [Pager] (pages of another kind),
// [Snapshotter] (the snapshot of a watch read as it is consumed), [Prover] on its Source (bookmarks), and [Mover], [GuardedMover],
// [BulkReader] and [Loader] (what a live migration uses: storage.As finds them in the backend, and package conformance/mover tests
// them).
package driver
