// Package feed distributes the changes of one store to all of its watches. All adapters share it; an adapter implements only a
// [Source].
//
//	database ──► Source (adapter) ──► log ──► watch ──► Next
//	             decodes once         bounded  a position and a filter;
//	                                           no goroutine, no queue
//
// # The log
//
// Published events are kept in a linked list of batches, bounded in number and bytes. A watch holds a pointer to the last batch
// that it has passed, and a position of the adapter's own type P: a revision, a snapshot, a map of shards. Publishing wakes the
// watches whose filters match. The others are woken together, a fraction of a second later: with a thousand watches, waking them is
// most of the cost of an event.
//
// A batch that leaves the bounds is emptied and unlinked, so a stalled watch retains nothing. Such a watch notices at its next step
// and continues from the database's history at its position. It ends only if that history is discarded too.
//
// # The join
//
// A watch starts from a snapshot, or from a position in history, and must continue in the log without a gap or a repeat:
//
//  1. note the log's end (Start, or the beginning of each page of history);
//  2. read the snapshot, or the last page of history, at some position;
//  3. follow the log from the noted end, skipping the events that the position contains.
//
// Events published before step 1 were committed and visible by then, so step 2 has read them. A later event is either contained in
// that position, as Contains reports, or delivered. This argument is complete, and no lock is held across the steps.
//
// # Bookmarks
//
// A bookmark proves that a watch has returned everything acknowledged before the request. A source that implements Prover supports
// it:
//
//	Bookmark ──► proof: Newest asks the database ──► a position ──► Next, once the watch has reached it
//
// The database must be queried after the request. Requests share a round trip only if it begins after all of them: requests during
// a round trip share the next one, across all watches of a run. Silence proves nothing: while the database is unreachable there is
// no proof, and bookmarks are late.
//
// # Commits
//
// An event that a watch returns reports whether its next event belongs to the same commit. Within a batch the watch looks ahead. If
// a batch ends inside a commit, the watch holds the event back until the next batch arrives, without passing it: if the batch falls
// out of the log meanwhile, history returns the event again.
//
// # Runs
//
// A run is one call of Source.Run. It begins with the first watch and ends with Close, with a permanent error of the source, or
// some time after the last watch was closed. Its end ends its watches, unless the source fell behind the retained history: then
// watches with newer positions continue in the next run. Each run has its own log, so a position of one run is never used in the
// log of another.
package feed
