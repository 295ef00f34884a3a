package storage

import (
	"context"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Historian is a backend whose changes are numbered, and which can be read as it was at a number. Find it with [As].
//
// # Revisions
//
// A revision is the number of a change. Revisions rise in the order of commits; none comes again, also after a restart or a
// fail-over; only the restore of an older backup makes a store count on from where that was. A store in which nothing was ever
// changed has revision 1 (on etcd: that of the cluster). Changes of one [Transactor.Commit] share a revision, or have several that
// follow each other. A revision means nothing in another store.
//
// An answer that carries a revision shows all changes up to it, and no change up to it can appear later.
//
// # What is kept
//
// A backend forgets what lies before its oldest revision: when [Historian.Compact] asks for it, and by itself, as its retention
// says. What is asked of an older revision is [ErrCompacted], what is asked of one that is not there yet [ErrFutureRevision].
type Historian interface {
	// Revisions returns the oldest revision at which the store can be read, and the newest one. The newest is strong: all that was
	// acknowledged, to anybody, before the call is part of it.
	Revisions(ctx context.Context) (oldest, newest int64, err error)
	// Scan reads the resources in a span, in key order, as they were at a revision.
	Scan(ctx context.Context, span Span, opts ScanOptions) (Scan, error)
	// Swap writes or deletes a resource if its key was last changed at a revision, atomically and durably. The outcome is never a
	// guess, as that of Backend.WriteCAS.
	Swap(ctx context.Context, swap Swap) (Swapped, error)
	// Follow returns every change in a span after a revision, which may be the oldest one.
	Follow(ctx context.Context, span Span, after int64) (Follower, error)
	// Compact has the backend forget what lies before a revision, which becomes the oldest one. Nothing happens if the oldest
	// revision is that or a newer one already. Followers, watches and listings that have not come so far end with ErrCompacted.
	Compact(ctx context.Context, revision int64) error
}

// Span is the keys from From on, in list order, up to To, which is not part of it; nil is no bound. Only those parts of an ID that
// belong to the key count. They may be empty, and longer by a byte than those of a key: a name with the character 1 behind it is what
// comes first after that name.
type Span struct{ From, To *resourcepb.ID }

// ScanOptions are the options of a scan.
type ScanOptions struct {
	// Revision at which to read; 0 is the newest one, as Revisions says it.
	Revision int64
	// Limit is the largest number of records; 0 is none.
	Limit int
	// Bytes is the size of resources at which a scan ends too, after the one that reaches it and with Scan.More set; 0 is 4 MiB. What a
	// scan returns is in memory all at once, and in that of some databases before.
	Bytes int
	// KeysOnly leaves out everything of a resource but the key and the version.
	KeysOnly bool
	// Count has all keys of the span counted, whatever the limit.
	Count bool
}

// Record is a resource with the numbers of its changes.
type Record struct {
	Resource *resourcepb.Resource
	// Created is the revision at which the resource was created, Modified that of its last change.
	Created, Modified int64
	// Writes is the number of changes since it was created, of which that is the first.
	Writes int64
}

// Scan is a part of a store as it was at a revision.
type Scan struct {
	Records []Record
	// Revision of what was read: give it, with Rest, to read on.
	Revision int64
	// Count is the number of resources in the span, if that was asked for.
	Count int64
	// More says that the span holds more than Records; Rest is then what is left of it.
	More bool
	Rest Span
}

// Swap is a write or a deletion: exactly one of the first two fields is set.
type Swap struct {
	// Write is stored, with a new version; the version in it does not matter. It has a uid, that of what is stored if something is.
	Write *resourcepb.Resource
	// Delete is removed, whatever uid is stored.
	Delete *resourcepb.ID
	// Expect is the revision of the key's last change, or 0 if nothing may be stored.
	Expect int64
}

// Swapped is what a swap came to.
type Swapped struct {
	// Done says that the swap was carried out. Otherwise the key was last changed at another revision.
	Done bool
	// Revision of the change if it was done, and otherwise one at which Stored was stored.
	Revision int64
	// Stored is what was written or deleted or, if nothing was done, what is in the way; nil for nothing.
	Stored *Record
}

// Change is a change that a Follower returns.
type Change struct {
	Revision int64
	// Now is what was written, nil for a deletion. Before is what was stored just before, nil for nothing.
	Now, Before *Record
	// More says that the next change belongs to the same commit.
	More bool
}

// Follower is a stream of changes. Next is for one goroutine at a time; Bookmark and Close may be called from any.
type Follower interface {
	// Next returns the next changes, waiting for some if need be, in order and whole commits only, and the revision up to which all
	// have been returned. No changes are the answer to a Bookmark. It fails as Watch.Next does.
	Next(ctx context.Context) (changes []Change, revision int64, err error)
	// Bookmark has Next return, with changes or without, once everything acknowledged before this call has been returned.
	Bookmarker
	// Close ends the follower, as Watch.Close does.
	Close()
}

// Recaller is a [Watch] that can tell what was stored before each change. Find it by a type assertion.
type Recaller interface {
	// Recall has the events from now on that are changes say what was stored just before them (WatchEvent.before), nothing if
	// nothing was. Call it before the first Next.
	Recall()
}
