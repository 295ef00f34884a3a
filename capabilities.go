package storage

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage/resourcepb"
)

// As returns a capability of a backend, such as [Pager], [Resumer] or [Transactor], and reports whether the backend has it.
//
// A backend has a capability if its type implements the interface. Otherwise As calls the backend's method
//
//	As(target any) bool
//
// if there is one, with a pointer to a variable of type T. The method sets the variable and returns true if the backend has the
// capability. As never unwraps a layer by itself.
//
// As checks the type before it calls the method because of types that embed a concrete backend, such as *sqlite.Backend. The promoted
// method As would return the embedded methods, not those that replace them. Such a type has all capabilities of the embedded backend
// and cannot refuse one.
//
// A layer that can refuse holds the other backend in a field of type [Backend], so that no capability is promoted, and declares no
// optional methods itself. Its method As provides each capability that the other backend has and the layer can uphold, as a value
// that wraps the other's. It returns false for all others, and thus for capabilities that are newer than the layer.
func As[T any](backend Backend) (T, bool) {
	if target, ok := backend.(T); ok {
		return target, true
	}
	var target T
	if provider, ok := backend.(interface{ As(target any) bool }); ok && provider.As(&target) {
		return target, true
	}
	var none T
	return none, false
}

// Pager is a backend that lists in pages; memory on both sides is bounded by the page. Without it, use Backend.List.
type Pager interface {
	// ListPage returns one page of a listing, in the order and with the filter of Backend.List.
	//
	// All pages of a listing read the same snapshot if the database can provide one. Otherwise a resource that existed unchanged
	// throughout the listing is neither skipped nor repeated. A page contains at most opts.Limit resources. It may contain fewer,
	// even none, while Page.Continue is set.
	//
	// A continue token belongs to its filter and works with any limit. Text that is not a token, and a token with another filter,
	// are [ErrInvalid]; a token of another store is [ErrCompacted]. A token is valid for at least 5 minutes after the first page was
	// read, unless the history that it needs is compacted on request (history.Historian.Compact, or etcd's own compaction). Later the
	// error may be [ErrCompacted]: list again from the start. An abandoned listing needs no cleanup. A backend that holds listings
	// itself returns [ErrInconsistent] for a new one while it holds its maximum: retry later. It never drops one listing for another.
	ListPage(ctx context.Context, typ UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts ListOptions) (Page, error)
}

// ListOptions are the options of one page.
type ListOptions struct {
	// Consistency applies to the first page. Later pages read the same state.
	Consistency ReadConsistency
	// Limit is the maximum number of resources in the page. 0 selects the backend's default; a negative limit is [ErrInvalid].
	Limit int
	// Continue is the token of the previous page, or "" for the first page.
	Continue string
	// Revision is the revision at which the listing reads the store; 0 is the present. It applies to the first page. With a revision,
	// continue tokens are valid as long as the revision is kept. It is [ErrInvalid] if the backend keeps no history. Package
	// history documents the other errors.
	Revision int64
	// SkipDamaged is called for each damaged resource. If it returns true, the page omits the resource; otherwise, and if it is nil, the
	// list fails with the [*DamagedError].
	SkipDamaged func(*DamagedError) bool
}

// Page is a part of a listing.
type Page struct {
	// Resources are the resources of this page.
	Resources []*resourcepb.Resource
	// Continue is the token for the next page, "" on the last one.
	Continue string
	// Cursor is the position of the listing in the store's history, the same on every page: a watch from it returns the changes
	// after the listing. It is "" if the backend is no [Resumer].
	Cursor string
}

// Resumer is a backend whose watches can start from an earlier position. Without it, start again with WatchList.
type Resumer interface {
	// WatchFrom returns a watch of exactly the changes after cursor, without a snapshot and without an end-of-snapshot event. No
	// change is missing or repeated, also in another process and after a restart. If lists are no snapshots, a cursor of a listing
	// or from shortly after a watch's snapshot may repeat changes that it already included.
	//
	// The cursor comes from Watch.Cursor or Page.Cursor and works with any filter. Text that is no cursor, "" included, and a cursor
	// from inside a snapshot are [ErrInvalid]. A cursor of another store, or one older than the retained history, is [ErrCompacted],
	// returned here or, wrapped in ErrWatchClosed, from the first Next: list again.
	WatchFrom(ctx context.Context, typ UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursor string) (Watch, error)
}

// Bookmarker is a [Watch] that can prove its progress. Find it by a type assertion: either all watches of a backend implement it
// or none does. Without it, a watch without events may lag behind: compare two lists instead.
type Bookmarker interface {
	// Bookmark requests proof of progress. Next then returns one bookmark event, after every matching change that was acknowledged
	// to any caller before the call. The event also comes on an idle store and on a filter without matches, after about one round
	// trip to the database. One event may answer several calls; there are never more events than calls. A watch that is still
	// returning its snapshot, or lags behind, returns the event once it has caught up. While the database is unreachable no event
	// comes. An error that ends the watch also ends the wait.
	//
	// The successful calls of a watch are numbered from 1. The event has the number of the newest call that it answers, and answers
	// all earlier calls, too. Concurrent calls have their numbers in any order.
	//
	// Bookmark may be called from any goroutine, also while Next blocks. It returns once the request is registered. It fails with
	// [ErrWatchClosed] if the watch has ended, and with the context's error if the context has ended. The context bounds this call
	// only.
	Bookmark(ctx context.Context) error
}

// Transactor is a backend that applies several operations atomically.
type Transactor interface {
	// Commit applies either all ops or none. The results line up with ops: the stored resource for a write, nil for the others.
	// Without operations it returns nil, nil.
	//
	// If an operation fails, the error is an [*OpError] with the lowest failing index. It unwraps to the error of WriteCAS or
	// DeleteCAS. It is [ErrInvalid] for an Op without exactly one of Write, Delete and Check, with a Version beside Write, with
	// Present without Delete, or on the key of an earlier Op.
	//
	// An error that no single operation caused is no OpError. Examples are [ErrTooLarge], for more than MaxOps operations or for
	// resources of more than 1 MiB together, [ErrClosed] and [ErrInconsistent].
	//
	// The order of events within one transaction is undefined.
	Commit(ctx context.Context, ops []Op) ([]*resourcepb.Resource, error)
	// MaxOps returns the maximum number of operations in a transaction, at least 32.
	MaxOps() int
}

// Op is one operation of a transaction. Exactly one of Write, Delete and Check is set.
type Op struct {
	// Write stores a resource, as WriteCAS does, at the version in the resource.
	Write *resourcepb.Resource
	// Delete deletes a resource, as DeleteCAS does, at Version. If nothing or another uid is stored, it succeeds and does nothing.
	Delete *resourcepb.ID
	// Check requires that this id is stored, with its uid, at Version, and changes nothing. It fails as WriteCAS does. With an empty
	// Version it requires that nothing is stored under the key; the uid is optional then.
	Check *resourcepb.ID
	// Version is the version that Delete and Check require.
	Version string
	// Present makes Delete fail, as Check does, if nothing or another uid is stored. Delete then needs a uid.
	Present bool
}

// OpError reports the operation that made a transaction fail.
type OpError struct {
	// Index is the index of the operation in the slice passed to Commit.
	Index int
	// Err is the cause.
	Err error
}

// Error implements the error interface.
func (e *OpError) Error() string { return fmt.Sprintf("operation %d: %v", e.Index, e.Err) }

// Unwrap returns Err.
func (e *OpError) Unwrap() error { return e.Err }
