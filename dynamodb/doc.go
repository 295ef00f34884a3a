// Package dynamodb stores resources in a table of Amazon DynamoDB and reads changes from the table's stream.
//
//	dynamodb://table[/prefix]?region=…
//
// A prefix separates several stores in one table. Region and credentials come from the standard sources of AWS tools (environment,
// shared files, roles); a URL never contains keys. The README in this directory documents the parameters.
//
// # How it works
//
// A write is one conditional PutItem. The caller's version contains everything that a write needs to know about the previous state
// (see versionRing), so it reads nothing first. A write is a transaction only if other items change as well: the owner's edge, or
// the parts of a resource larger than 384 KiB.
//
// A deletion leaves a tombstone for two hours. A write whose answer was lost is repeated: if the first request was applied, the
// repeated one finds its own token.
//
// Concurrent strong reads are sent together as a BatchGetItem.
//
// The stream returns every change of every item, in order for each key. One reader follows it, from parent shards to their
// children, and feeds all watches. A cursor is a position in each shard.
//
//	WriteCAS ──► PutItem v = :base ──► table ──► stream: shard ─► shard
//	                                                   │       └► shard
//	                                reader (rounds) ◄──┘
//	                                   │
//	                                feed ──► watches
//
// # Structure
//
// Each part is a type that uses only the parts below it; handle, in dynamodb.go, composes them.
//
//	writer      write.go                                mutations, from the decision to the request
//	lister      list.go                                 lists, pages, and the snapshots of watches
//	bucketScan  bucket.go                               one partition key of a type, in order
//	closer      fence.go                                closes the store for writing
//	notes       mover.go                                the notes of a migration
//	writeLease  fence.go                                a handle's permission to write while the store is open
//	records     feed.go                                 decodes the records of the stream
//	reader      read.go                                 single resources, and the children of an owner
//	watermarks  watermarks.go                           keeps eventual reads from going back in time
//	registry    registry.go                             the types that the store has contained, and their buckets
//	setup       schema.go                               prepares the table and the store when they are opened
//	table       table.go                                requests for items
//	            plan.go, layout.go, bucketset.go        the stored form
//	            options.go, url.go
//
//	streams     internal/streams                        the consumer of the stream, the source of changes
//	relays      relays.go, internal/relays              the connection to package relay, which reads the stream for other processes
//	request     internal/request                        repeats requests, tracks AWS's clock, classifies errors
//
// # Limits of DynamoDB
//
// A list is not one cut through the store: each resource in it was read at some moment of the call. The same holds for the snapshot
// of a watch. The changes that follow continue it key by key, without a gap or a repeat.
//
// A backend has no history. The changes of a table have no common order, only an order for each key, and the table keeps no old
// state. A counter raised by every write would number the changes, at twice the price, and limit the store to the write rate of one
// item.
package dynamodb
