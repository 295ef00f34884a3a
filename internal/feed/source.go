package feed

import (
	"context"
	"io"

	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Event is one change. It is immutable once published: watches share it, and clone what they hand out.
type Event[P any] struct {
	// Key of the resource.
	Key key.Key
	// Delete tells a deletion from a write.
	Delete bool
	// Resource as it was written, or as it was last stored before the deletion, with its version.
	Resource *resourcepb.Resource
	// Size of the resource in bytes, for the log's bound.
	Size int
	// At is where the event stands in the store's history: what Contains and Advance look at.
	At P
}

// Source is the adapter's side of a feed. P is its position, which is never changed in place.
type Source[P any] interface {
	// Run delivers changes until ctx ends. It calls ready once, as soon as every change after that position is going to be
	// published; then publish for each batch, in order. end is the position after the batch, which may be empty.
	//
	// It reconnects by itself. It returns when ctx is over, or with an error when history is lost or the database stayed away
	// too long: that ends all watches with ErrWatchClosed, the error wrapped in it. An error before ready is returned from
	// Start as it is.
	Run(ctx context.Context, ready func(P), publish func(events []*Event[P], end P)) error

	// History returns the changes after from, for filter f. It does not ask the database yet.
	History(from P, f *key.Filter) History[P]

	// Contains tells whether the state that at describes includes ev.
	Contains(at P, ev *Event[P]) bool

	// Advance returns at with ev added, and with what precedes ev in its batch.
	Advance(at P, ev *Event[P]) P

	// Merge returns at with everything up to end added, where end is the position after a batch.
	Merge(at, end P) P

	// Cursor returns the text by which a watch can start from at.
	Cursor(at P) string
}

// History is changes of the past, read page by page.
type History[P any] interface {
	// Page reads the next changes, in order, about limit of them at most; there may be some that the filter leaves out. end is
	// the position after them. more is false when end was the newest state at some moment after the call began. After an error
	// the next call begins where this one did. History that is gone is an error that matches storage.ErrCompacted.
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

type sliceSnapshot struct{ resources []*resourcepb.Resource }

// SliceSnapshot is a snapshot that is in memory already.
func SliceSnapshot(resources []*resourcepb.Resource) Snapshot {
	return &sliceSnapshot{resources}
}

func (s *sliceSnapshot) Next(context.Context) (*resourcepb.Resource, error) {
	if len(s.resources) == 0 {
		return nil, io.EOF
	}
	res := s.resources[0]
	s.resources[0] = nil
	s.resources = s.resources[1:]
	return res, nil
}

func (s *sliceSnapshot) Close() { s.resources = nil }
