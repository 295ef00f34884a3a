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

// StoreID identifies a store for as long as its data lives. It is random, made with the store, and part of every token. It is
// an array of 16 bytes.
type StoreID = cursor.StoreID

// Driver is one opened store of a database. P is a position in the store's history, which is never changed in place.
//
// All methods may be called from any number of goroutines. A context has a deadline unless backend.Options says otherwise; a driver tries
// again for as long as it lasts where an attempt fails for a reason that may pass, and then returns an error that matches
// storage.ErrInconsistent. A call that ends before it has sent anything may return the context's error as it is. Errors name what was
// tried, not the operation or the key, which the tier adds.
type Driver[P any] interface {
	// StoreID returns the id of the store.
	StoreID() StoreID

	// Get returns what is stored under a key, nil for nothing. The resource belongs to the caller.
	Get(ctx context.Context, consistency storage.ReadConsistency, k Key) (*resourcepb.Resource, error)

	// Apply carries out mutations of different keys, all of them or none, atomically and durably. Each is decided as
	// Mutation.Decide says. If one is refused, the error is a *storage.OpError with the lowest index of those and what Decide
	// returned. Otherwise Apply sets Written of each write.
	//
	// If the answer of the database is lost, the driver finds out what became of the mutations. Only where it cannot, the error
	// matches storage.ErrInconsistent, and then they may have happened.
	Apply(ctx context.Context, mutations []Mutation) error

	// List adds the resources that match a filter to rows, in key order, as one cut through the store.
	List(ctx context.Context, consistency storage.ReadConsistency, f *Filter, rows Rows) error

	// Children returns the ids of the resources whose owner has this key and uid, in key order, with their uids and group
	// versions.
	Children(ctx context.Context, owner Key, uid string) ([]*resourcepb.ID, error)

	// Source returns the store's changes. It is called once.
	Source() Source[P]

	// Close ends calls that are under way, which is an error that matches storage.ErrClosed or, after a mutation was sent,
	// storage.ErrInconsistent, and frees what the driver holds. It is called once, after the Source's Run has ended.
	Close() error
}

// Rows takes the rows of a list.
type Rows interface {
	// Restart drops what was added, for a list that begins anew.
	Restart()
	// Add adds a resource: the bytes of its key, the text of its version, and the resource as [Encode] encodes it. All are
	// copied. An error ends the list, which returns it as it is.
	Add(key, version, data []byte) error
	// AddResource adds a resource that belongs to the tier from then on.
	AddResource(res *resourcepb.Resource) error
}

// Snapshotter is a Driver that reads the snapshot of a watch while the watch is consumed. Without it, the tier reads the snapshot in
// pages from the driver's history. A driver that is no Historian has to be a Snapshotter and a Pager.
type Snapshotter[P any] interface {
	// Snapshot returns what a filter matches at a moment during the call, and the position of that moment. It shows everything
	// that was acknowledged before the watch was asked for, at called. An error that matches ErrRunEnded has the tier start again.
	Snapshot(ctx context.Context, called time.Time, f *Filter) (Snapshot, P, error)
}

// ErrRunEnded says that the Source's Run ended while a snapshot needed it.
var ErrRunEnded = errors.New("the stream of changes began anew")

// Pager is a Driver that reads pages of a listing from the database. Without it, the tier reads all pages of a listing from the
// driver's history, at the position of the first one.
type Pager[P any] interface {
	// Page returns at most limit resources in key order. from is nil for the first page and otherwise Next of the page before;
	// bytes that this driver never returned are an error that matches storage.ErrInvalid, a listing that is gone
	// storage.ErrCompacted.
	Page(ctx context.Context, consistency storage.ReadConsistency, f *Filter, from []byte, limit int) (ListedPage[P], error)
}

// ListedPage is a page of a Pager.
type ListedPage[P any] struct {
	Resources []*resourcepb.Resource
	// Next says where the next page begins; nil on the last page.
	Next []byte
	// At is the position of the listing, the same on every page.
	At P
}

// MaxSize is the largest size of a resource on every backend, without its version, in bytes.
const MaxSize = check.MaxSize
