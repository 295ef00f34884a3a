package driver

import (
	"context"

	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Event is one change. It is immutable once published: watches share it, and clone what they hand out.
type Event[P any] struct {
	// Key of the resource.
	Key Key
	// Delete tells a deletion from a write.
	Delete bool
	// Resource as it was written, or as it was last stored before the deletion, with its version.
	Resource *resourcepb.Resource
	// Damage, if not nil, says that what is stored of the change cannot be read, and that there is no Resource. It ends the
	// watches that want the event, before they pass it, and no others: leaving it out would be a gap that nobody hears of.
	Damage error
	// Size of the resource in bytes, for the log's bound.
	Size int
	// At is where the event stands in the store's history: what Contains and Advance look at.
	At P
	// Revision is the event's number, CreateRevision that of the change by which the resource was created, and Writes the number of changes
	// since then, that one included; of a deletion they are those of what was last stored, but for Revision. They are 0 where the driver
	// is no driver.Historian.
	Revision, CreateRevision, Writes int64
	// Commit is the same, and not 0, for events that became visible to readers at once; they stand next to each other. It is 0
	// for an event that is alone in its commit, and where the source cannot tell.
	Commit int64
	// CommitContinues says that the batch or page ends with this event but its commit does not, so that a watch has to look at the next one
	// to learn whether something of the commit is left for it. Where it is false for the last event, a batch or page ends with
	// a whole commit. A page that ends inside a commit holds the event at its end even if the filter leaves that out.
	CommitContinues bool
}

// Version is a resource as it was stored at some time: Key with the version's text and the bytes of the encoded resource, or Resource.
// Nobody changes what it refers to.
type Version struct {
	Key, Version, Data []byte
	Resource           *resourcepb.Resource
	// SingleReader says that nobody looks at Data but who turns it into a resource, which may keep it.
	SingleReader bool
	// CreateRevision is the revision at which the resource was created, ModRevision that of its last change then, and Writes the number of changes
	// from the one to the other, both counted.
	CreateRevision, ModRevision, Writes int64
}

// Decode returns the resource, which belongs to the caller.
func (v *Version) Decode() (*resourcepb.Resource, error) {
	switch {
	case v.Resource != nil:
		return codec.Clone(v.Resource), nil
	case v.SingleReader:
		return codec.AdoptAt(v.Key, v.Data, string(v.Version))
	}
	return codec.DecodeAt(v.Key, v.Data, string(v.Version))
}

// Source gives the changes of a store, and knows what its positions mean.
type Source[P any] interface {
	// Run delivers changes until ctx ends. It calls ready once, as soon as every change after that position is going to be
	// published; then publish for each batch, in order. end is the position after the batch, which may be empty.
	//
	// It reconnects by itself. It returns when ctx is over, or with an error when history is lost or the database stayed away for
	// too long: that ends all watches with storage.ErrWatchClosed, the error wrapped in it. An error before ready is returned to
	// those who wait for a watch to begin.
	Run(ctx context.Context, ready func(P), publish func(events []*Event[P], end P)) error
	// History returns the changes after from, for a filter. It does not ask the database yet.
	History(from P, f *Filter) History[P]
	// Contains reports whether the state at a position includes an event.
	Contains(at P, ev *Event[P]) bool
	// Advance returns a position with an event added, and with what precedes the event in its batch.
	Advance(at P, ev *Event[P]) P
	// Merge returns a position with everything up to end added, where end is the position after a batch.
	Merge(at, end P) P
	// Encode returns a position as bytes, for cursors. Any handle of the store can read them, at any later time.
	Encode(at P) []byte
	// Decode undoes Encode. Bytes that are no position are an error that matches storage.ErrInvalid, a position whose history
	// is known to be gone storage.ErrCompacted. It does not ask the database.
	Decode(b []byte) (P, error)
}

// Prover is what a Source implements beside Source if it can prove how far a watch is. Its watches are storage.Bookmarkers.
//
// With positions on a line it is little: Newest reads the end of the line, as a strong read would, and Reached compares two
// numbers.
type Prover[P any] interface {
	// Newest asks the database for a position that contains every change which was acknowledged, to anybody, before the call.
	// It has Run, wherever that is, publish a batch soon whose end has reached the position, which may be an empty one;
	// where Run has published that much already, there is nothing left to do. Nothing but an answer to a question that was
	// asked during the call will do: what the source happens to know is older.
	//
	// It gives up by itself when an answer takes too long, and is called again after an error until the run ends. Calls do not
	// overlap.
	Newest(ctx context.Context) (P, error)

	// Reached reports whether at contains everything that target, a position from Newest, contains.
	Reached(at, target P) bool
}

// PageBytes is the number of bytes of resources after which a page of history ends, whatever the number of changes in it: a
// watch that is behind holds a page in memory for as long as nobody reads from it.
const PageBytes = 4 << 20

// History is changes of the past, read page by page.
type History[P any] interface {
	// Page reads the next changes, in order, about limit of them and about PageBytes of resources at most, whichever comes
	// first; there may be some that the filter leaves out. end is the position after them. more is false when end was the newest
	// state at some moment after the call began, and then the page ends with a whole commit. After an error the next call begins
	// where this one did. History that is gone is an error that matches storage.ErrCompacted.
	Page(ctx context.Context, limit int) (events []*Event[P], end P, more bool, err error)
	// Close frees what the reading holds; it may be called while a page is read, which then fails. Closing twice is fine.
	Close()
}

// Pages is the History of a database in which one page is as easy to find as another: read reads the one after from.
func Pages[P any](from P, read func(ctx context.Context, from P, limit int) (events []*Event[P], end P, more bool, err error)) History[P] {
	return &pages[P]{from, read}
}

type pages[P any] struct {
	from P
	read func(ctx context.Context, from P, limit int) ([]*Event[P], P, bool, error)
}

func (p *pages[P]) Page(ctx context.Context, limit int) ([]*Event[P], P, bool, error) {
	events, end, more, err := p.read(ctx, p.from, limit)
	if err == nil {
		p.from = end
	}
	return events, end, more, err
}

func (*pages[P]) Close() {}

// Snapshot is the beginning of a watch: resources in list order, each for the watch to give away.
type Snapshot interface {
	// Next returns the next resource, or io.EOF after the last.
	Next(ctx context.Context) (*resourcepb.Resource, error)
	// Close frees what the snapshot holds. It is called once.
	Close()
}
