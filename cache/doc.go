// Package cache answers reads from memory. A [Cache] is a backend around another backend: it keeps a copy of chosen types in memory, and one
// watch of the inner backend feeds the copy.
//
//	backend, err := storage.Open(ctx, "postgres://…")
//	cached, err := cache.New(ctx, backend, &cache.Options{Types: []storage.UnversionedType{{Group: "shop", Kind: "Order"}}})
//
// # Reads
//
// Eventual reads, eventual lists and owner references use the copy and make no database call. A program reads its own writes at once: an
// acknowledged write overlays the copy until the watch delivers it. A list returns one consistent cut of the store, and a local write on top
// of an older copy is not such a cut. So a list waits until the watch has delivered the local writes.
//
// A strong read or list first waits for a barrier and then reads the copy. The barrier proves that the watch has delivered everything that was
// acknowledged before the call ([storage.Bookmarker]). Concurrent callers share one round trip. Strong reads go to the database if the
// backend's watches cannot prove this, as with DynamoDB, and while the copy has no watch.
//
// # Calls that bypass the copy
//
// Pages, watches, other types and [history.Historian] calls are answered by the backend. These answers may be ahead of the copy,
// like the state that caused the refusal of a write. An eventual read is never older than an earlier answer of the same Cache. The
// Cache ensures it like this:
//
//  1. An answer that may be ahead of the copy marks its key as unconfirmed. A list, a page or a watch snapshot marks every key of the copy,
//     because the resources that it lacks count too.
//  2. The mark is removed when the copy has reached the same version, or when a barrier has proven that the copy caught up.
//  3. An eventual read of an unconfirmed key waits for a barrier. This is the only eventual read that may cost a round trip.
//  4. If watches prove nothing, the database answers for an unconfirmed key until its answer equals the copy's state.
//
// # Loss of history
//
// If the backend ends the watch (storage.ErrCompacted, or an outage that was too long), the Cache lists the store again, row by row, and then
// switches the copy to the new state in one step. Until then, eventual reads return the old state.
//
// # Memory
//
// Resources are kept encoded, with about 200 bytes of overhead each. [Options].Trim removes parts that a program does not need, and
// [Cache.Stats] returns the number of resources and their size.
package cache
