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
// # What DynamoDB cannot do
//
// A list is no single cut through the store: each resource in it is as it was at some moment of the call. A snapshot that a
// watch begins with is the same, and the changes that follow continue it key by key, without a gap or a repeat.
package dynamodb
