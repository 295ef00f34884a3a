package storage

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage/resourcepb"
)

// As finds a capability of a backend, such as [Pager], [Resumer] or [Transactor].
//
// A backend has a capability if it implements the interface. A layer around another backend cannot know at compile time what
// it will wrap, so it may have a method
//
//	As(target any) bool
//
// which is asked first, with a pointer to a variable of the wanted type: it sets the variable and returns true for what the
// layer can uphold, and returns false for the rest. As never looks inside a layer by itself.
//
// A backend of package driver has more than its methods show, for tools that move a store: driver.Mover, driver.GuardedMover,
// driver.BulkReader and driver.Loader. It has a method Seam, of the same form, which is asked last.
func As[T any](backend Backend) (T, bool) {
	var target, none T
	if layer, ok := backend.(interface{ As(target any) bool }); ok {
		if layer.As(&target) {
			return target, true
		}
		return none, false
	}
	if target, ok := backend.(T); ok {
		return target, true
	}
	if made, ok := backend.(interface{ Seam(target any) bool }); ok && made.Seam(&target) {
		return target, true
	}
	return none, false
}

// Pager is a backend that lists in pages, with memory on both sides bounded by the page. Without it, use Backend.List.
type Pager interface {
	// ListPage returns one page of a listing, in the order and with the filter of Backend.List.
	//
	// All pages of a listing show the same snapshot where the database can hold one; where it cannot, a resource that
	// existed unchanged throughout is neither skipped nor repeated. A page holds at most opts.Limit resources; it may hold
	// fewer, even none, while Page.Continue is set.
	//
	// A continue token goes with the filter that it came from and with any limit: another filter, or text that is no
	// token, is [ErrInvalid]. It lives for at least 5 minutes after the first page was read, unless the history that it needs is
	// compacted by request ([Historian].Compact, or etcd's own); after that it may be [ErrCompacted]: list again from the
	// start. A listing that is not finished needs no clean-up. A backend that holds listings itself refuses a new one with
	// [ErrInconsistent] while it holds as many as it can: retry later. It gives up none for another.
	ListPage(ctx context.Context, typ UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts ListOptions) (Page, error)
}

// ListOptions are the options of one page.
type ListOptions struct {
	// Consistency of the first page; later pages follow it.
	Consistency ReadConsistency
	// Limit is the largest number of resources in the page; 0 is the backend's default, a negative one is [ErrInvalid].
	Limit int
	// Continue is the token of the page before, or "" for the first one.
	Continue string
	// Revision has the first page, and so the listing, show the store as it was then; 0 is the present. Continue tokens then live for as
	// long as the revision is kept. It is [ErrInvalid] where the backend is no [Historian]; see there for its errors.
	Revision int64
}

// Page is a part of a listing.
type Page struct {
	// Resources of this page.
	Resources []*resourcepb.Resource
	// Continue asks for the next page; "" on the last one.
	Continue string
	// Cursor is the position in the store's history that the listing belongs to, the same on every page: a watch from it
	// shows what changed since. "" where the backend is no [Resumer].
	Cursor string
}

// Resumer is a backend whose watches can start from an earlier position. Without it, start again with WatchList.
type Resumer interface {
	// WatchFrom returns a watch that gives exactly the changes after cursor: no snapshot, no end-of-snapshot event, nothing
	// missing and nothing twice, also in another process and after a restart. (After a listing that was no snapshot,
	// changes that it already showed may come again; none is missing.)
	//
	// The cursor is one of Watch.Cursor or Page.Cursor and goes with any filter. Text that is no cursor, "" included, and a
	// cursor from inside a snapshot are [ErrInvalid]. A cursor of another store, or one that is older than the history
	// kept, is [ErrCompacted], from here or from the first Next (wrapped in ErrWatchClosed): list again.
	WatchFrom(ctx context.Context, typ UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (Watch, error)
}

// Bookmarker is a [Watch] that can prove how far it is. Find it by a type assertion; the watches of a backend all have it, or
// none has. Where a watch has it not, silence proves nothing: compare two lists instead.
type Bookmarker interface {
	// Bookmark asks for proof. The watch then returns a bookmark event from Next, once, after everything that was
	// acknowledged, to anybody, before Bookmark was called and that the watch's filter matches. It comes without any change
	// too, and on a filter that nothing matches, after about one round trip to the database. Several calls may be answered
	// by one event, and there are never more events than calls. A watch that is still in its snapshot, or behind, answers when
	// it has got there. While the database is away there is no answer; what ends a watch ends the waiting for it.
	//
	// Bookmark may be called from any goroutine, also while Next waits, and returns once the request is noted or has failed:
	// [ErrWatchClosed] if the watch has ended, the context's error if it was over. The context bounds this call only.
	Bookmark(ctx context.Context) error
}

// Transactor is a backend that applies several operations all together or not at all.
type Transactor interface {
	// Commit applies ops atomically. The results line up with ops: the stored resource for a write, nil for the others. No
	// operations: nil, nil.
	//
	// If an operation cannot be done, none is, and the error is an [*OpError] with the lowest failing index, which unwraps
	// to what WriteCAS or DeleteCAS would have returned. Two operations on one key, an Op without exactly one of Write, Delete
	// and Check, a Version beside Write and Present without Delete are [ErrInvalid]. More than MaxOps operations, or resources of more than 1 MiB
	// together, are [ErrTooLarge]. What no single operation caused is not an OpError. The order of events within one
	// transaction is undefined.
	Commit(ctx context.Context, ops []Op) ([]*resourcepb.Resource, error)
	// MaxOps is the largest number of operations in a transaction, at least 32.
	MaxOps() int
}

// Op is one operation of a transaction: exactly one of Write, Delete and Check is set.
type Op struct {
	// Write stores a resource as WriteCAS does, at the version in the resource.
	Write *resourcepb.Resource
	// Delete removes a resource as DeleteCAS does, at Version. Deleting nothing, or another uid, succeeds and does nothing.
	Delete *resourcepb.ID
	// Check demands that this id is stored, with its uid, at Version, and changes nothing. It fails as WriteCAS would. With
	// Version "" it demands that nothing is stored under the key, and the uid may be left out.
	Check *resourcepb.ID
	// Version belongs to Delete and Check.
	Version string
	// Present belongs to Delete, which then needs a uid: where nothing is stored, or another uid, it fails as a Check at a version does,
	// instead of doing nothing.
	Present bool
}

// OpError says which operation of a transaction failed.
type OpError struct {
	// Index of the operation in the slice given to Commit.
	Index int
	// Err is why.
	Err error
}

// Error implements the error interface.
func (e *OpError) Error() string { return fmt.Sprintf("operation %d: %v", e.Index, e.Err) }

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }
