// Package feed carries the changes of one store to all of its watches. It is written once; an adapter writes only a [Source].
//
//	database ──► Source (adapter) ──► log ──► watch ──► Next
//	             decodes once         bounded  a position and a filter;
//	                                           no goroutine, no queue
//
// # The log
//
// Published events stand in a linked list of batches, bounded in number and bytes. A watch holds a pointer to the last batch
// that it has passed, and a position of the adapter's own type P: a revision, a snapshot, a map of shards. Publishing wakes the
// watches that the events are for. The others sleep on and are woken together, a fraction of a second later: with a thousand
// watches, to wake them is most of what an event costs.
//
// A batch that leaves the bounds is emptied and cut off, so that a watch which stands still pins nothing. Such a watch finds
// out at its next step and reads on from the database's history by its position; only if that is gone too does it end.
//
// # The join
//
// A watch starts from a snapshot, or from a position in history, and must go on in the log without a gap or a repeat:
//
//  1. note the log's end (Start, or the beginning of each page of history);
//  2. read the snapshot, or the last page of history, at some position;
//  3. follow the log from the noted end, leaving out what that position contains.
//
// What was published before step 1 had been committed and visible then, so it is in what step 2 read. What is published later
// is either in it, and Contains says so, or it is not, and is delivered. Nothing else has to be argued, and no lock is held
// across the steps.
//
// # Bookmarks
//
// A bookmark is proof that a watch has returned everything which was acknowledged before it was asked for. A source that
// implements Prover can give it:
//
//	Bookmark ──► proof: Newest asks the database ──► a position ──► Next, once the watch has reached it
//
// What counts is that the question was put after the request. So requests share a round trip only if it begins after all of
// them: those that come while one is under way share the one after it, across all watches of a run. Silence proves nothing and
// is not listened to: while the database is away there is no proof, and bookmarks come late.
//
// # Commits
//
// An event that a watch returns says whether its next one is of the same commit. Within a batch the watch looks ahead. Where a
// batch ends inside a commit, it holds the event back until the next batch has told, without having passed it: should it fall
// out of the log meanwhile, history gives the event again.
//
// # Life
//
// A run is one call of Source.Run. It begins with the first watch and ends with Close, with an error that the source cannot
// mend, or some time after the last watch was closed. Its end ends its watches, unless the source fell behind the history that is
// kept: then those that did not fall as far behind go on in the next run, from their positions. Each run has a log of its own, so
// positions of one run never meet the log of another.
package feed
