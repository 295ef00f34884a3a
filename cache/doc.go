// Package cache is a layer between a program and its backend that answers reads from memory. It keeps a copy of chosen types, which
// one watch of the backend feeds, and is a backend itself:
//
//	backend, err := storage.Open(ctx, "postgres://…")
//	cached, err := cache.New(ctx, backend, &cache.Options{Types: []storage.UnversionedType{{Group: "shop", Kind: "Order"}}})
//
// # Reads
//
// Eventual reads, lists and owner references come from the copy, without a word to the database. A program sees its own writes at once:
// what was acknowledged lies over the copy until the watch brings it. A list waits for that, since it is one cut through the store, which
// a write of one's own over an older copy would not be.
//
// A strong read or list is a barrier and then a look at the copy: the watch proves that it has brought everything which was acknowledged
// before ([storage.Bookmarker]). All callers that wait share one round trip. Where the watches of a backend prove nothing, as DynamoDB's,
// and while the copy has lost its watch, strong reads go to the database.
//
// # What goes past the copy
//
// Pages, watches, other types, and what [storage.Historian] offers come from the backend, and may be ahead of the copy, as may be what a
// write was refused for. An eventual read is never older than what the same Cache has shown before. So a key of which the copy may be behind
// is held in doubt, until the copy has arrived there or a barrier has proven it; that is the only case in which an eventual read may cost a
// round trip. A list, a page or the snapshot of a watch puts every key of the copy in doubt, because of what it lacks. Where watches prove
// nothing, the database then answers for each key until it has shown what the copy shows.
//
// # Loss of history
//
// When the backend ends the watch (storage.ErrCompacted, an outage that was too long), everything is listed anew, row by row, and the copy
// moves to the new state at once. Until then eventual reads show the old one.
//
// # Memory
//
// Resources lie in memory encoded, with about 200 bytes beside them. [Options].Trim leaves out what a program does not need;
// [Cache.Stats] tells how much there is.
package cache
