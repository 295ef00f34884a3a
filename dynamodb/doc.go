// Package dynamodb keeps a store in a table of Amazon DynamoDB, and reads its changes from the table's stream.
//
//	dynamodb://table[/prefix]?region=…
//
// Prefixes keep several stores in one table. Region and credentials come from where every AWS tool finds them (environment,
// shared files, roles); keys never stand in the URL. The parameters are in the README beside this file.
//
// # How it works
//
// A write is one conditional PutItem. The version that the caller gives holds all that a write needs to know of the state before
// (see stamp), so nothing is read first. Only when other items change too, the owner's edge or the parts of a resource beyond
// 384 KiB, is it a transaction.
//
// A deletion leaves a tombstone for two hours. Lost answers are resolved by asking again: a request that had been carried out
// finds its own token.
//
// Strong reads that arrive while others are under way leave together as a BatchGetItem.
//
// The stream gives every change of every item, in order for each key. One reader follows it, from parent shards to children, and
// feeds all watches. A cursor is a position in each shard.
//
//	WriteCAS ──► PutItem v = :base ──► table ──► stream: shard ─► shard
//	                                                   │       └► shard
//	                                reader (rounds) ◄──┘
//	                                   │
//	                                feed ──► watches
//
// # Where things are
//
// Each part is a type of its own and knows only those below it; handle, in dynamodb.go, wires them together.
//
//	writer      write.go                                mutations, from the decision to the request
//	lister      list.go                                 lists, pages, and the snapshots of watches
//	closer      fence.go                                closes the store for writing
//	notes       mover.go                                the notes of a migration
//	permit      fence.go                                a handle's permission to write, as long as nobody closes the store
//	records     feed.go                                 what a record of the stream means
//	reader      read.go                                 single resources, and the children of one
//	watermarks  watermarks.go                           keeps eventual reads from going back in time
//	registry    schema.go                               which types there are
//	setup       schema.go                               the table and the store, when they are opened
//	table       table.go                                requests for items
//	            plan.go, layout.go                      what is stored
//	            options.go, url.go
//
//	streams     internal/streams                        the consumer of the stream, which is the source of changes
//	request     internal/request                        repetition of requests, AWS's clock, fates of errors
//
// # What DynamoDB cannot do
//
// A list is no single cut through the store: each resource in it is as it was at some moment of the call. A snapshot that a
// watch begins with is the same, and the changes that follow continue it key by key, without a gap or a repeat.
//
// A backend is no history.Historian. The changes of a table have no common order, only those of each key, and the table keeps no old
// state that could be read. A counter that every write raised would number them, at twice the price and as fast as one item takes
// writes.
package dynamodb
