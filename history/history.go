// Package history is the interface of stores that number their changes and retain old versions for a limited time: all adapters of
// this module except dynamodb. A caller reads such a store at a revision, writes on the condition of a revision, and follows the
// changes after a revision, each with the previous state.
//
//	h, ok := storage.As[history.Historian](backend)
//
// This package is for servers of other protocols, such as package etcdserver, and for tools. Programs that list and watch by type and
// tenancy do not need it: [storage.ListOptions] has a revision, too.
//
// # Revisions
//
// A revision is the number of a commit, on SQLite of one of the concurrent calls in a commit. Revisions increase in commit order, not
// always by one, and are never reused, also not after a restart or a fail-over. Only a store restored from an older backup continues
// from the backup's revision. A new store has revision 1 (on etcd, the revision of the cluster). The changes of one
// [storage.Transactor].Commit share a revision. A revision has no meaning in another store.
//
// An answer with a revision includes every change up to it. No change up to it can appear later.
//
// # Retention
//
// A backend discards the history before its oldest revision, on request ([Historian.Compact]) and by its retention settings. A
// request for an older revision fails with [storage.ErrCompacted], a request for a revision that does not exist yet with
// [storage.ErrFutureRevision].
package history

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Historian is a backend that numbers its changes and can be read at an earlier revision. Find it with [storage.As].
type Historian interface {
	// Revisions returns the oldest and the newest readable revision of the store. The newest one is strong: it includes everything
	// acknowledged before the call.
	Revisions(ctx context.Context) (oldest, newest int64, err error)
	// Scan reads the resources in a range at a revision, in key order.
	Scan(ctx context.Context, keys Range, opts ScanOptions) (ScanResult, error)
	// Swap writes or deletes a resource, atomically and durably, if the key was last changed at the expected revision. As with
	// [storage.Backend].WriteCAS, the outcome is never a guess.
	Swap(ctx context.Context, swap Swap) (SwapResult, error)
	// Follow returns every change in a range after a revision, which must not be older than the oldest one.
	Follow(ctx context.Context, keys Range, after int64) (Follower, error)
	// Compact discards the history before a revision. The last commit up to it becomes the oldest revision. It does nothing if the
	// oldest revision is not smaller. Followers, watches and listings that still need the discarded history end with storage.ErrCompacted.
	Compact(ctx context.Context, revision int64) error
}

// Range is the range of keys from From, inclusive, to To, exclusive, in list order; nil is unbounded. Only the parts of an ID that
// belong to the key count. They may be empty, and one byte longer than the parts of a key: a name followed by the byte 1 is the
// first name after it.
type Range struct{ From, To *resourcepb.ID }

// ScanOptions are the options of a scan.
type ScanOptions struct {
	// Revision is the revision to read at; 0 is the newest one, as returned by Revisions.
	Revision int64
	// Limit is the maximum number of records; 0 is unlimited.
	Limit int
	// Bytes ends the scan after the resource that reaches this total size, with ScanResult.More set; 0 is 4 MiB. The whole result is held
	// in memory, with some databases on the server as well.
	Bytes int
	// KeysOnly omits everything from a resource but the key and the version.
	KeysOnly bool
	// Count requests the number of all keys in the range, regardless of the limit.
	Count bool
}

// Record is a resource with the revisions of its changes.
type Record struct {
	Resource *resourcepb.Resource
	// Created is the revision of the creation, Modified the revision of the last change.
	Created, Modified int64
	// Writes is the number of changes since the creation, which is the first.
	Writes int64
}

// ScanResult is a part of a store at a revision.
type ScanResult struct {
	Records []Record
	// Revision is the revision of the scan. To continue, scan Rest at it.
	Revision int64
	// Count is the number of resources in the range, if requested.
	Count int64
	// More reports that the range contains more than Records. Rest is then the remaining range.
	More bool
	Rest Range
}

// Swap is a write or a deletion. Exactly one of Write and Delete is set.
type Swap struct {
	// Write is stored with a new version; its own version is ignored. It needs a uid, which equals the stored one if a resource is
	// stored.
	Write *resourcepb.Resource
	// Delete is deleted, regardless of the stored uid.
	Delete *resourcepb.ID
	// Expect is the revision of the key's last change, or 0 if nothing may be stored.
	Expect int64
}

// SwapResult is the result of a swap.
type SwapResult struct {
	// Done reports whether the swap was applied. Otherwise the key was last changed at another revision.
	Done bool
	// Revision is the revision of the change. If the swap was not applied, Stored is the stored state at that revision.
	Revision int64
	// Stored is the written or deleted resource. If the swap was not applied, it is the resource stored under the key, or nil.
	Stored *Record
}

// Change is one change returned by a Follower.
type Change struct {
	Revision int64
	// New is the written resource, nil for a deletion. Old is the resource stored just before, nil if there was none.
	New, Old *Record
	// More reports that the next change belongs to the same commit.
	More bool
}

// Follower is a stream of changes. Only one goroutine may call Next at a time; Bookmark and Close are safe for concurrent use.
type Follower interface {
	// Next returns the next changes, in order and in whole commits, and the last revision whose changes have all been returned. It
	// blocks until there are some. An empty result answers a Bookmark. It fails as storage.Watch.Next does.
	Next(ctx context.Context) (changes []Change, revision int64, err error)
	// Bookmark makes Next return, with or without changes, once everything acknowledged before this call has been returned.
	storage.Bookmarker
	// Close ends the follower, as storage.Watch.Close does.
	Close()
}

// Recaller is a [storage.Watch] that can return the previous state with each change. Find it by a type assertion.
type Recaller interface {
	// Recall makes all later change events contain the resource stored just before them (WatchEvent.before), if there was one. Call
	// it before the first Next.
	Recall()
}
