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
//	Subscriber     another driver.Source; receives the events from a Relay in another process
//	Relay          reads like Source, and sends the events to subscribers
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
// # Snapshots
//
// The reader opens the shards at their ends, and then a snapshot is read strongly. The changes after it are exact without any other
// knowledge of the shards: a [Baseline] has the count of each key in the snapshot, and skips the records up to that state.
//
//	a write acknowledged before the scan  is in the snapshot, or a later state of its key is
//	a later write                         leaves a record behind the ends at which the shards were opened, in their children, or in a
//	                                      shard that the listing omitted, which is read from its beginning once it is listed
//	the records of a key                  come in order across shards, so the count drops exactly the states up to the snapshot's
//
// A record appears once, the records of an item are in order, and parents precede children: "Change data capture for DynamoDB
// Streams", Amazon DynamoDB Developer Guide. That a shard has the changes of different keys in the order of their acknowledgement is
// inferred from one leader and one log for each partition ("Amazon DynamoDB", USENIX ATC 2022). If that were false, a change could
// repeat; none would be lost.
//
// # Proofs
//
// An answer without records proves nothing, because such answers also precede records (API GetRecords). The prover therefore writes
// ticks, small items of its own, and considers a moment passed when every open shard has returned a tick that was written after it.
//
// A partition whose type was split by sort key receives no tick ("Scaling DynamoDB", AWS Database Blog, part 2: an item collection is
// split unless there is a local index or its sort keys rise). Nothing depends on such a proof: watches open without it, and a watch that
// resumes makes the reader read the quiet shards again from their beginning.
//
// # Relays
//
// A Subscriber is a reader without a stream: it publishes batches with the positions of a relay's reader, and its position has the same
// meaning. So snapshots, baselines and cursors are the same as with a Source. It moves between relays because of these facts:
//
//	a position        contains a set of records, whichever relay sent it; a relay at an older one sends records again, which watches skip
//	a relay's log     has every record after its start, so it continues each position that includes the start; otherwise the relay reads
//	                  the records between the two from the stream, and extends its log by them
//	history           ends at the subscriber's own position, because exactly what follows it will be published
//	a proof           begins at the relay after the subscriber's request, and its end is sent after everything that it is about
//
// Nothing is concluded from a relay's silence, or from its lease.
package streams
