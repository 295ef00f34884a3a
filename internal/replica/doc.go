// Package replica keeps a copy of some types of a store in memory, with indexes. Packages cache and typed/tables build on it.
//
// # The copy
//
// One watch feeds the copy. Its changes are applied at the end of each commit, so a [View] is one cut. A View is a copy of the trees, which
// share their nodes until either is modified.
//
// # Local writes
//
// A program reads its own writes at once, before the watch delivers them. A local write goes through these states:
//
//  1. Sent: [Replica.Begin] was called before the request to the backend. Versions of the keys that the watch delivers from now on
//     are recorded.
//  2. Acknowledged: [Writing.End] was called after the backend's answer. The write overlays the copy, unless the watch has already delivered
//     it, or a later state.
//  3. Confirmed: the watch has delivered the very version, or a bookmark proves that the watch is past it. The overlay is removed.
//
// If the watch was reopened meanwhile, the list of the new watch may or may not include an acknowledged write: its state is unknown until a
// bookmark confirms it. Without bookmarks, a read of the key from the database decides.
//
// # Followers
//
// A [Follower] reads the log of changes, starting at a View. The log is bounded, however slow the followers are; each follower holds a position
// in the log. After a relist, the differences are appended to the log.
package replica
