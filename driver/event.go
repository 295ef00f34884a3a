package driver

import (
	"context"

	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Event is one change. It is immutable once published: watches share it and clone the resources that they return.
type Event[P any] struct {
	// Key is the key of the resource.
	Key Key
	// Delete reports whether the change is a deletion.
	Delete bool
	// Resource is the written resource, or the last stored one before the deletion, with its version.
	Resource *resourcepb.Resource
	// Damage is the reason why the stored change cannot be read; Resource is then nil. It ends the watches that match the event,
	// before they pass it, because omitting the event would be an unnoticed gap. Other watches continue.
	Damage error
	// Size is the size of the resource in bytes, for the bound of the log.
	Size int
	// At is the position of the event in the store's history, for Contains and Advance.
	At P
	// Revision is the number of the event's commit, which all events of an Apply share. CreateRevision is the revision of the resource's
	// creation, and Writes the number of changes since then, including this event. For a deletion, CreateRevision and Writes describe
	// the last stored resource. All three are 0 if the driver is no Historian.
	Revision, CreateRevision, Writes int64
	// Commit is the same non-zero number for events that became visible atomically; these are adjacent. It is 0 for the only event
	// of a commit, and if the source cannot know.
	Commit int64
	// CommitContinues reports that the batch or page ends with this event although its commit continues. A watch then reads the
	// next batch or page to find further events of the commit. If it is false for the last event, the batch or page ends with a
	// whole commit. A page that ends inside a commit contains the event at its end even if the filter excludes it.
	CommitContinues bool
}

// Version is a resource as stored at some time. Either Key, Version and Data are set, the bytes of the key, of the version's text and
// of the encoded resource, or Resource is. The referenced data is immutable.
type Version struct {
	Key, Version, Data []byte
	Resource           *resourcepb.Resource
	// SingleReader reports that Data has a single reader, which may keep it without copying.
	SingleReader bool
	// Damage, if not nil, is the *storage.DamagedError of a resource that the driver could not decode. Key and Version are set then.
	Damage error
	// CreateRevision is the revision of the resource's creation, ModRevision the revision of its last change up to that time, and
	// Writes the number of changes from the first to the last, inclusive.
	CreateRevision, ModRevision, Writes int64
}

// Decode returns the resource, which belongs to the caller. A damaged resource is a *storage.DamagedError.
func (v *Version) Decode() (*resourcepb.Resource, error) {
	switch {
	case v.Damage != nil:
		return nil, v.Damage
	case v.Resource != nil:
		return codec.Clone(v.Resource), nil
	case v.SingleReader:
		return codec.AdoptAt(v.Key, v.Data, string(v.Version))
	}
	return codec.DecodeAt(v.Key, v.Data, string(v.Version))
}

// Source provides the changes of a store and interprets its positions.
type Source[P any] interface {
	// Run delivers changes until ctx ends. It calls ready once, with a position, when it is certain to publish every change after
	// that position. Then it calls publish for each batch, in order; end is the position after the batch, which may be empty.
	//
	// Run reconnects by itself. It returns when ctx has ended, or with an error if history was lost or the database was unreachable
	// for too long. The error ends all watches with storage.ErrWatchClosed, which wraps it. An error before ready is returned to
	// the callers that wait for a new watch.
	Run(ctx context.Context, ready func(P), publish func(events []*Event[P], end P)) error
	// History returns the changes after from that match a filter. It sends no request yet.
	History(from P, f *Filter) History[P]
	// Contains reports whether the state at a position includes an event.
	Contains(at P, ev *Event[P]) bool
	// Advance returns a position extended by an event and by the events that precede it in its batch.
	Advance(at P, ev *Event[P]) P
	// Merge returns a position extended by everything up to end, the position after a batch.
	Merge(at, end P) P
	// Encode returns a position as bytes, for cursors. Any handle of the store can decode them at any later time.
	Encode(at P) []byte
	// Decode is the inverse of Encode. Bytes that are no position are an error that matches storage.ErrInvalid. For a position whose
	// history is known to be discarded, the error matches storage.ErrCompacted. Decode sends no request.
	Decode(b []byte) (P, error)
}

// Prover is an optional interface of a Source that can prove the progress of a watch. Its watches are storage.Bookmarkers.
//
// If positions are numbers, Newest reads the newest one as a strong read would, and HasReached compares two of them.
type Prover[P any] interface {
	// Newest reads from the database a position that contains every change acknowledged to any caller before the call. It ensures
	// that Run soon publishes a batch, possibly an empty one, whose end has reached the position, unless Run has published that
	// much already. The position must come from an answer to a request sent during the call; cached knowledge is too old.
	//
	// Newest limits its own time. After an error it is called again until the run ends. Calls do not overlap.
	Newest(ctx context.Context) (P, error)

	// HasReached reports whether at contains everything that target, a position from Newest, contains.
	HasReached(at, target P) bool
}

// PageBytes bounds a page of history: the page ends once its resources have that many bytes, whatever the number of changes in it.
// A watch that is behind holds one page in memory until it is consumed.
const PageBytes = 4 << 20

// History is a sequence of past changes, read page by page.
type History[P any] interface {
	// Page reads the next changes, in order. It returns about limit changes and about PageBytes of resources at most; some changes
	// may not match the filter. end is the position after them. more is false if end was the newest state at some moment after the
	// call began; the page then ends with a whole commit. After an error, the next call starts at the same place. Discarded history
	// is an error that matches storage.ErrCompacted.
	Page(ctx context.Context, limit int) (events []*Event[P], end P, more bool, err error)
	// Close frees the reader's resources. It may be called during Page, which then fails. Closing twice is allowed.
	Close()
}

// Pages returns the History of a database that finds every page at the same cost: read reads the page after from.
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

// Snapshot is the start of a watch: resources in list order. The caller owns each returned resource.
type Snapshot interface {
	// Next returns the next resource, or io.EOF after the last one. After a *storage.DamagedError the next call continues behind the damaged
	// resource.
	Next(ctx context.Context) (*resourcepb.Resource, error)
	// Close frees the snapshot's resources. It is called once.
	Close()
}
