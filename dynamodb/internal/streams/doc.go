// Package streams reads the changes of a table from its DynamoDB stream. It is the [driver.Source] of the adapter.
//
// # Shards
//
// A stream is a set of shards. Each contains records in order, with numbers. DynamoDB closes a shard every few hours, or when its
// partition splits, and continues in one or more children, whose records follow all of the parent's. The changes of a key are in
// one shard at a time. Shards that do not descend from each other have no order, so a [Position] contains the progress in each
// shard.
//
//	shard 1 ──────────► $                     $  read to its end
//	                    ├──► shard 2 ──► 17      read up to record 17
//	                    └──► shard 3             not started
//
// # Parts
//
//	Source         the driver.Source; opens a reader for each run
//	reader         reads the open shards in rounds and publishes their events
//	prover         proves, by its own ticks, that the reader has passed a moment
//	backlogReader  reads from an older position up to the reader's, for watches that resume or lag
//	shards         the three calls of the stream's API; converts records into events
//	tree           the known shards and their parents
//	Position       the progress in each shard, the content of a cursor
//	Baseline       the states in a snapshot, so that older records are skipped
//
// Each part uses only the parts below it in this list. A [Table] decodes records and stores ticks.
//
// # Proofs
//
// An answer without records proves nothing, because such answers also precede records. The prover therefore writes ticks, small
// items of its own, and considers a moment passed when every open shard has returned a tick that was written after it.
package streams
