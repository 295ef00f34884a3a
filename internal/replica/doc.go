// Package replica keeps a copy of some types of a store in memory, with indexes: what package store stands on.
//
// # The copy
//
// One watch feeds it. What the watch returns is applied up to the end of a commit, so a [View] is one cut. A View is a copy of the trees,
// which share their nodes until one of them is written.
//
// # Own writes
//
// A program sees its own writes at once, before the watch brings them. They lie over what the watch has brought (own, in own.go), each
// until the watch brings the very version. A write may also come by the watch before it is acknowledged; then nothing may lie over what
// has come since. So who writes says so before ([Replica.Begin]), and what comes for these keys in the meantime is noted. When the watch
// had to be opened anew it is not known whether the list has a write that was acknowledged meanwhile: a bookmark tells.
//
// # Followers
//
// A [Follower] reads the log of changes from the point of a View on. The log is bounded, whatever the followers do, and followers hold
// positions in it. When the store was listed anew, the log gets what differs.
package replica
