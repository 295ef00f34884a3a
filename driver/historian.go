package driver

import (
	"cmp"
	"context"
	"time"

	"github.com/ashlar-dev/storage"
)

// Historian is a Driver that numbers its changes and can be read at an earlier position. Its backend is a history.Historian;
// package history defines revisions. Pages of listings and the snapshots of watches are read at the position of their first page,
// so their tokens work in any process. A position must therefore stay readable for TokenLifetime after it was the present one,
// unless Compact was called or a bound of its memory was exceeded. A Historian sets Event.Revision, CreateRevision and Writes, and
// Mutation.Revision.
type Historian[P any] interface {
	// ReadAt reads records, in key order, at one position, and passes each to add. An error of add ends the read and is returned
	// unchanged. add retains nothing of a Version but its Resource. ReadAt checks in the same snapshot whether the position is
	// still retained; if it may not be, the error matches storage.ErrCompacted.
	ReadAt(ctx context.Context, q *HistoryQuery[P], add func(*Version) error) (HistoryPage[P], error)
	// Before returns the resources stored just before each of these events, which are of one page or batch of the Source; nil if
	// nothing was stored. If the history may be discarded, the error matches storage.ErrCompacted.
	Before(ctx context.Context, events []*Event[P]) ([]*Version, error)
	// Revisions returns the oldest and the newest readable revision of the store, as history.Historian does: by a strong read.
	Revisions(ctx context.Context) (oldest, newest int64, err error)
	// PositionAt returns the position that contains exactly the changes up to a revision, once no further change up to it can
	// appear. If there is no such position, the error matches storage.ErrCompacted or storage.ErrFutureRevision.
	PositionAt(ctx context.Context, revision int64) (P, error)
	// AwaitFinal waits until no further change up to a revision can appear. The revision belongs to a change made by this handle.
	// If the database has no cheaper way to know, AwaitFinal is PositionAt without the result.
	AwaitFinal(ctx context.Context, revision int64) error
	// RevisionOf returns the last revision whose changes a position contains completely: the revision of a durable change, or of
	// the empty store.
	RevisionOf(at P) int64
	// Compact makes a revision the oldest one, unless a newer one is. A future revision is an error that matches
	// storage.ErrFutureRevision.
	Compact(ctx context.Context, revision int64) error
}

// TokenLifetime is the minimum lifetime of a continue token, counted from the read of the first page of its listing.
const TokenLifetime = 5 * time.Minute

// HistoryQuery is the argument of Historian.ReadAt.
type HistoryQuery[P any] struct {
	// At is the position; nil selects the present one, read with Consistency. In that case Final requires a position whose
	// RevisionOf is complete, and the driver may wait for it.
	At          *P
	Consistency storage.ReadConsistency
	Final       bool
	// RefuseMoved requests the error of Fence.ReadError if the store has moved. The fence is read with the data.
	RefuseMoved bool
	// PrecedesWatch reports that a watch reads the page, and will follow the changes after the returned position.
	PrecedesWatch bool
	// From and To bound the bytes of keys: From <= key < To. nil is unbounded.
	From, To []byte
	// Key is set if the query is about this key alone. From and To are then its bounds, and Filter is nil. A database that reads
	// one key faster than a range may use it; others ignore it.
	Key *Key
	// Filter, if not nil, excludes other keys. A filter that excludes many keys costs one probe for each run of excluded keys, not
	// a read of each key.
	Filter *Filter
	// Limit is the maximum number of records to add; 0 is unlimited. In addition, a driver stops after about MaxBytes bytes of
	// data, but not before the first record.
	Limit int
	// Bytes is the number of bytes of data at which a driver stops; 0 selects PageBytes.
	Bytes int
	// KeysOnly reports that Version.Data is not needed.
	KeysOnly bool
	// Count requests the number of all matching keys, including those beyond the limit.
	Count bool
}

// MaxBytes returns the size limit of the read in bytes of data.
func (q *HistoryQuery[P]) MaxBytes() int { return cmp.Or(q.Bytes, PageBytes) }

// HistoryPage is the result of Historian.ReadAt.
type HistoryPage[P any] struct {
	At    P
	More  bool  // there may be more within the bounds
	Count int64 // if requested
}
