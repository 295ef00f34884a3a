package storage

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Wildcard matches every value of a tenancy unit, of a type's kind, or of its group and kind together, in lists and watches.
const Wildcard = "*"

// ReadConsistency is the freshness that a read or list requires.
type ReadConsistency int

const (
	// EventualConsistency allows an answer that lags behind. It is monotonic per opened backend: never older than an earlier answer
	// of the same backend, nor than the newest event that its watches have returned.
	EventualConsistency ReadConsistency = iota
	// StrongConsistency requires a linearizable answer: it includes every write, by any caller, that was acknowledged before the
	// call began.
	StrongConsistency
)

// String returns "eventual" or "strong".
func (c ReadConsistency) String() string {
	switch c {
	case EventualConsistency:
		return "eventual"
	case StrongConsistency:
		return "strong"
	}
	return fmt.Sprintf("ReadConsistency(%d)", int(c))
}

// Backend stores typed resources in one store: a database, a schema, a key prefix or a table. Any number of processes may open
// the same store at the same time.
//
// # Keys
//
// The key of a resource is (group, kind, partition, namespace, name). The uid and the group version are not part of it. Each
// part is UTF-8 without NUL, at most 255 bytes long, in any case and with any punctuation. Group, kind and name are not empty,
// and no part is "*" alone. Two different keys never collide, whatever characters they contain.
//
// # Errors
//
// Every method returns the first of these errors that applies: [ErrClosed] after Close; [ErrInvalid] for bad input (a nil id, an
// unknown consistency, text that is not UTF-8) or [ErrTooLarge]; the context's error if the context ended before a request was
// sent. If the database does not answer before the deadline, the error is [ErrInconsistent] and also matches the context's
// error. A context without a deadline gets the backend's timeout, 30 seconds unless the URL sets it. A stored resource that
// cannot be decoded is a [*DamagedError].
//
// # Concurrency
//
// All methods are safe for concurrent use. Arguments are neither changed nor retained. The caller owns the results.
type Backend interface {
	// Read returns the resource with this id.
	//
	// It returns [ErrNotFound] if nothing is stored under the key, or if id has a uid that differs from the stored one. It returns a
	// [GroupVersionMismatchError], which contains the stored resource, if the stored group version differs from id's.
	Read(ctx context.Context, consistency ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error)

	// WriteCAS creates or replaces a resource, atomically and durably, if res.Version equals the stored version; an empty version
	// creates. It returns the resource with its new version, which is opaque, not empty, and was never used for this key before.
	//
	// The id must have a uid, else the error is [ErrInvalid]. The first row that applies decides:
	//
	//	nothing stored, version empty      created, with the uid given
	//	nothing stored, version not empty  ErrCASFailure
	//	another uid is stored              ErrWrongUid
	//	another version is stored          ErrCASFailure
	//	otherwise                          replaced
	//
	// Any text is a legal version: one that the backend never returned does not match. A resource is [ErrTooLarge] if it encodes,
	// without its version, to more than 1 MiB, or to more than the URL's lower limit.
	//
	// The outcome is never a guess. If a connection fails during the write, the backend determines whether the write was applied.
	// It returns [ErrInconsistent] only if the database stays unreachable until the deadline; then the write may or may not have
	// happened.
	//
	// The group version is not compared. It is replaced with the rest of the resource.
	WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error)

	// DeleteCAS deletes the resource with this id if version equals the stored version.
	//
	// It returns nil and changes nothing if nothing is stored, or if the stored uid differs from id's uid, which may be empty. A
	// repeated delete therefore succeeds. It returns [ErrCASFailure] if the uid matches and the version differs. Resources that
	// name the deleted one as their owner remain.
	DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error

	// List returns the resources of a type and tenancy whose name begins with namePrefix, taken literally, in the byte order of
	// (group, kind, partition, namespace, name).
	//
	// Each unit of the tenancy may be [Wildcard], and so may typ.Kind, or typ.Group and typ.Kind together. An empty unit matches
	// only the empty unit. The list is one snapshot of the store, unless the backend documents that its database cannot provide
	// one. It is held in memory: use a [Pager] for long lists. It is nil if nothing matches.
	List(ctx context.Context, consistency ReadConsistency, typ UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) ([]*resourcepb.Resource, error)

	// WatchList returns a watch with the filter of List. The watch first returns a snapshot, taken between this call and its return,
	// then an end-of-snapshot event, then every later change. The context bounds the call only: the watch lives until it is closed.
	WatchList(ctx context.Context, typ UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (Watch, error)

	// OwnerReferences returns the ids of the resources that name id as their owner, in key order, with their uids and group
	// versions. It is nil if there are none. The id must have a uid: owners match by key and uid, not by group version. Deleting an
	// owner leaves its references. A reader that has seen an owner's delete event gets every reference that existed at that delete.
	OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error)

	// Close ends all watches, waits for the backend's goroutines and closes its connections. Later calls of other methods return
	// [ErrClosed]. Closing twice is allowed.
	Close() error
}

// Watch is a stream of events. Only one goroutine may call Next at a time; Cursor and Close are safe for concurrent use.
type Watch interface {
	// Next returns the next event and blocks until there is one.
	//
	// The events of a key come in commit order, each exactly once and none missing: every version that a successful write returned,
	// then the deletion with the last stored resource. A watch survives restarts, fail-overs and network cuts of its database for a
	// limited time.
	//
	// If the backend knows the bounds of commits, an event reports whether the next event belongs to the same commit. A reader that
	// applies events up to the end of a commit has a state that existed. Bookmark events come only on request: see [Bookmarker].
	//
	// If ctx ends first, Next returns its error and consumes nothing, so the next call continues. [ErrWatchClosed] is final: the
	// watch was closed, its history was compacted, or the database was unreachable for too long; the cause is wrapped. Open a new
	// watch, from a snapshot or from the last cursor. If the backend was closed, the error also matches [ErrClosed].
	Next(ctx context.Context) (*resourcepb.WatchEvent, error)

	// Cursor returns a position at or after the last returned event and before the next one, for use with [Resumer]. It returns ""
	// if the backend cannot resume. A snapshot contains no such position: WatchFrom returns [ErrInvalid] for a cursor taken inside
	// a snapshot.
	Cursor() string

	// Close ends the watch and discards its buffer. A blocked Next and all later calls return [ErrWatchClosed]. Closing twice is
	// allowed.
	Close()
}

// UnversionedType is a resource type without its group version: the part that belongs to the key.
type UnversionedType struct {
	Group string
	Kind  string
}

// UnversionedTypeFrom returns t without its group version. It returns the zero value if t is nil.
func UnversionedTypeFrom(t *resourcepb.Type) UnversionedType {
	return UnversionedType{Group: t.GetGroup(), Kind: t.GetKind()}
}
