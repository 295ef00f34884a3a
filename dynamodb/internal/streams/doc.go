// Package streams reads the changes of a table from its DynamoDB stream, and is the [driver.Source] that serves them.
//
// # Shards
//
// A stream is a set of shards. Each has records in order, which have numbers. DynamoDB closes a shard every few hours, or when its
// partition splits, and goes on in one or more children, whose records come after all of the parent's. The changes of one key are in
// one shard at a time. Between shards that do not descend from each other there is no order, so a [Position] says how far each shard
// is read.
//
//	shard 1 ──────────► $                     $  read to its end
//	                    ├──► shard 2 ──► 17      read up to record 17
//	                    └──► shard 3             not begun
//
// # Parts
//
//	Source      what the driver tier sees; opens a reader for each run
//	reader      follows the open shards in rounds and publishes what it finds
//	prover      proves, by ticks of its own, that the reader has passed a moment
//	backlogReader     reads from an older position up to where the reader stands, for watches that resume or fell behind
//	shards      the three calls of the stream's API, and the records in an answer as events
//	tree        which shard descends from which, as far as listings have shown it
//	Position    how far each shard is read: what a cursor holds
//	Baseline    what a snapshot showed, so that the records which it was ahead of are left out
//
// Each part knows only those below it in this list. What a record means, and how a tick is stored, the package asks a [Table].
//
// # Proofs
//
// An answer without records says nothing: such answers come before data, too. So the prover writes ticks, small items of its own, and
// takes a moment for passed when every open shard has shown one that was written after it.
package streams
