// Package driver is the interface between a database and the storage contract.
//
// The author of an adapter implements [Driver]: one read, one write, one list, the children of an owner, and a [Source] of changes.
// Package driver/backend makes it a storage.Backend with pages, resumable watches, transactions and bookmarks, and does what does
// not depend on the database: checks of input, deadlines, the order of errors and the words around them, tokens, and the join of a
// snapshot with the changes that follow it.
//
// A resource that is given to a Driver belongs to the caller of the backend: the driver neither changes nor keeps it. A resource
// that a Driver returns belongs to the caller of the Driver.
//
// What a driver must decide by itself, because only its database can, is whether a mutation may happen: it compares what is stored
// with what the caller expects in the same atomic step as the change, by [Mutation.Decide] or by a statement that comes to the same.
//
// # Opening
//
// An adapter registers an opener for the scheme of its URLs with storage.Register. Every adapter knows these parameters, and refuses
// unknown ones and malformed values with storage.ErrInvalid, naming the parameter:
//
//	max-size   the largest resource in bytes, backend.Options.MaxSize
//	timeout    a duration, backend.Options.Timeout
//	create     off: a store that is not there is not made; on: it is
//
// An opener that opens by a context uses it for opening only: what it returns outlives the context.
//
// # Optional parts
//
// A driver has a listing for pages and for the snapshots of watches: it implements [Historian] (the store as it was, of which the tier
// makes both), or [Pager] and [Snapshotter]. It may also implement [Prover] on its Source (bookmarks), and [Mover], [GuardedMover] and
// [Bulk] (what a live migration uses: storage.As finds them in the backend, and package conformance tests them).
package driver
