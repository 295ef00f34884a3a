package driver

import (
	"cmp"
	"context"
	"time"

	"github.com/ashlar-dev/storage"
)

// Historian is a Driver that can be read as it was at an earlier position, and numbers its changes. Its backend is a
// history.Historian, and pages of listings, and the snapshots of watches, are read at the position of the first one, so that their tokens
// are good in any process. So a position has to be readable for TokenLifetime after it was the present, unless Compact was called.
// history.Historian says what revisions are. Event.Revision, Created and Writes, and Mutation.Revision, are set.
type Historian[P any] interface {
	// ReadAt reads records, in key order, as they were at one position, and gives each to add, whose error ends the reading and is
	// returned as it is; add keeps nothing of a Version but its Resource. It looks at what is forgotten in the same snapshot as at
	// the records: what may be gone is an error that matches storage.ErrCompacted.
	ReadAt(ctx context.Context, q *HistoryQuery[P], add func(*Version) error) (HistoryPage[P], error)
	// Before returns what was stored just before each of these events, which are of one page or batch of the Source, nil for
	// nothing. What may be gone is an error that matches storage.ErrCompacted.
	Before(ctx context.Context, events []*Event[P]) ([]*Version, error)
	// Revisions returns the oldest position at which the store can be read and the newest one, as history.Historian does: with a
	// strong read.
	Revisions(ctx context.Context) (oldest, newest int64, err error)
	// PositionAt returns the position that has everything up to a revision and nothing else, once no change up to it can appear
	// later: an error that matches storage.ErrCompacted or storage.ErrFutureRevision where there is none.
	PositionAt(ctx context.Context, revision int64) (P, error)
	// Settled waits until no change up to a revision can appear any more. The revision is that of a change which this handle has
	// made. Where that is not cheaper to know, it is PositionAt without the position.
	Settled(ctx context.Context, revision int64) error
	// RevisionOf returns the revision up to which a position has everything: that of a change that is durable, or of the empty
	// store.
	RevisionOf(at P) int64
	// Compact makes a revision the oldest one, unless a newer one is. A revision that is not there yet is an error that matches
	// storage.ErrFutureRevision.
	Compact(ctx context.Context, revision int64) error
}

// TokenLifetime is how long a continue token lives at least, after the first page of its listing was read.
const TokenLifetime = 5 * time.Minute

// HistoryQuery says what Historian.ReadAt reads.
type HistoryQuery[P any] struct {
	// At is the position; nil for the present one, with Consistency. Then Final says that the answer has to be a position of which
	// RevisionOf says all there is, for which the driver may have to wait.
	At          *P
	Consistency storage.ReadConsistency
	Final       bool
	// PrecedesWatch says that a watch is going to follow the changes after the position that is returned.
	PrecedesWatch bool
	// From and To bound the bytes of keys: From <= key < To. nil: no bound.
	From, To []byte
	// Key is set if the query is about this key alone: From and To are its bounds then, and Filter is nil. A database that reads one
	// key at less cost than a range may look at it; others ignore it.
	Key *Key
	// Filter, where it is not nil, leaves out other keys. A filter that leaves out many costs a probe for each run of keys that it
	// skips, not a look at each of them.
	Filter *Filter
	// Limit is the largest number of records to add; 0: no bound. Beside that a driver stops after about Most bytes of data, if there
	// was at least one record.
	Limit int
	// Bytes is how many bytes of data that is; 0: PageBytes.
	Bytes int
	// KeysOnly says that Version.Data is not wanted.
	KeysOnly bool
	// Count has all matching keys counted, those beyond the limit too.
	Count bool
}

// MaxBytes returns after how many bytes of data the reading ends.
func (q *HistoryQuery[P]) MaxBytes() int { return cmp.Or(q.Bytes, PageBytes) }

// HistoryPage is what Historian.ReadAt has read.
type HistoryPage[P any] struct {
	At    P
	More  bool  // there may be more within the bounds
	Count int64 // if it was asked for
}
