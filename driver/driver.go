package driver

import (
	"context"
	"errors"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/resourcepb"
)

// StoreID identifies a store for as long as its data lives. It is an array of 16 random bytes, created with the store, and part of
// every token.
type StoreID = cursor.StoreID

// Driver is an opened store of a database. P is a position in the store's history; a position is never modified in place.
//
// All methods are safe for concurrent use. A context has a deadline unless backend.Options disables it. If an attempt fails for a
// temporary reason, the driver retries until the deadline, and then returns an error that matches storage.ErrInconsistent. A call
// that ends before it has sent a request may return the context's error unchanged. Errors describe the failed step; package
// driver/backend adds the operation and the key.
type Driver[P any] interface {
	// StoreID returns the id of the store.
	StoreID() StoreID

	// Get returns the resource stored under a key, or nil. The resource belongs to the caller.
	Get(ctx context.Context, consistency storage.ReadConsistency, k Key) (*resourcepb.Resource, error)

	// Apply applies mutations of different keys, all of them or none, atomically and durably. Mutation.Decide defines each
	// decision. If a mutation is refused, the error is a *storage.OpError with the lowest refused index and the error of Decide.
	// Otherwise Apply sets NewVersion of each write.
	//
	// If the database's answer is lost, the driver finds out whether the mutations were applied. Only if it cannot, the error
	// matches storage.ErrInconsistent, and the mutations may have been applied.
	Apply(ctx context.Context, mutations []Mutation) error

	// List adds the resources that match a filter to rows, in key order, as one snapshot of the store.
	List(ctx context.Context, consistency storage.ReadConsistency, f *Filter, rows Rows) error

	// Children returns the ids of the resources whose owner has this key and uid, in key order, with their uids and group
	// versions.
	Children(ctx context.Context, owner Key, uid string) ([]*resourcepb.ID, error)

	// Source returns the store's changes. It is called once.
	Source() Source[P]

	// Close ends pending calls and frees the driver's resources. A pending call fails with an error that matches storage.ErrClosed
	// or, after a mutation was sent, storage.ErrInconsistent. Close is called once, after the Source's Run has returned.
	Close() error
}

// Rows receives the rows of a list.
type Rows interface {
	// Restart drops all added rows, because the list starts again.
	Restart()
	// Add adds a resource: the bytes of its key, the text of its version, and the resource as encoded by [Encode]. All three are
	// copied. An error ends the list, which returns it unchanged.
	Add(key, version, data []byte) error
	// AddResource adds a resource and takes ownership of it.
	AddResource(res *resourcepb.Resource) error
}

// Snapshotter is a Driver that reads the snapshot of a watch while the watch is consumed. Without it, the backend reads the
// snapshot in pages from the driver's history. A driver without Historian must be a Snapshotter and a Pager.
type Snapshotter[P any] interface {
	// Snapshot returns the resources that match a filter at a moment during the call, and the position of that moment. It contains
	// every change acknowledged before called, the time of the watch's request. If the error matches ErrRunEnded, the backend
	// starts again. Snapshot returns Fence.ReadError in a store that has moved.
	Snapshot(ctx context.Context, called time.Time, f *Filter) (Snapshot, P, error)
}

// ErrRunEnded reports that the Source's Run ended while a snapshot needed it.
var ErrRunEnded = errors.New("the stream of changes began anew")

// Pager is a Driver that reads pages of a listing from the database. Without it, the backend reads all pages of a listing from the
// driver's history, at the position of the first page.
type Pager[P any] interface {
	// Page returns at most limit resources in key order. from is nil for the first page and ListedPage.Next of the previous page
	// otherwise. Bytes that this driver never returned are an error that matches storage.ErrInvalid; an expired listing is one that
	// matches storage.ErrCompacted. A strong listing returns Fence.ReadError in a store that has moved.
	Page(ctx context.Context, consistency storage.ReadConsistency, f *Filter, from []byte, limit int) (ListedPage[P], error)
}

// ListedPage is a page of a Pager.
type ListedPage[P any] struct {
	Resources []*resourcepb.Resource
	// Damaged are the damaged resources of the page, which Resources lacks. The list fails unless storage.ListOptions.SkipDamaged accepts
	// all of them.
	Damaged []*storage.DamagedError
	// Next is the start of the next page; nil on the last page.
	Next []byte
	// At is the position of the listing, the same on every page.
	At P
}

// MaxSize is the maximum size of a resource without its version, in bytes, on every backend.
const MaxSize = check.MaxSize
