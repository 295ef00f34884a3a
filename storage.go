package storage

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Wildcard matches every value of a tenancy unit, of a type's kind, or of its group and kind together, in lists and watches.
const Wildcard = "*"

// ReadConsistency says how fresh the answer to a read or list must be.
type ReadConsistency int

const (
	// EventualConsistency allows an answer that lags behind. It is monotonic for each opened backend: never older than an
	// earlier answer of the same backend, and never older than the newest event that one of its watches has delivered.
	EventualConsistency ReadConsistency = iota
	// StrongConsistency demands an answer that is linearizable: it shows every write that was acknowledged, to anybody,
	// before the call began.
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

// Backend keeps typed resources in one store: a database, a schema in one, a key prefix, a table. Any number of processes
// may open the same store at once.
//
// # Keys
//
// A resource's key is (group, kind, partition, namespace, name). The uid and the group version are not part of it. Each part
// is UTF-8 without NUL of at most 255 bytes, in any case and with any punctuation; group, kind and name are not empty, and
// no part is "*" alone. Different keys never meet, whatever characters they hold.
//
// # Errors
//
// Every method returns the first of these errors that applies: [ErrClosed] after Close; [ErrInvalid] for input that breaks a rule
// (a nil id, an unknown consistency, text that is not UTF-8), or [ErrTooLarge]; the context's error if it was over before
// anything was sent. Then the database is asked, and if it does not answer in time, the error is [ErrInconsistent], which also
// matches the context's error. A context without a deadline gets the backend's own timeout (30 seconds unless the URL says
// otherwise). What is stored but cannot be read is a [*DamagedError].
//
// # Concurrency
//
// All methods may be called from any number of goroutines. Arguments are not changed and not kept; results belong to the
// caller.
type Backend interface {
	// Read returns the resource with this id.
	//
	// Nothing stored under the key, or a resource with another uid than a non-empty one in id: [ErrNotFound]. Otherwise a
	// stored group version that differs from the one in id: [GroupVersionMismatchError], with the stored resource in it.
	Read(ctx context.Context, consistency ReadConsistency, id *resourcepb.ID) (*resourcepb.Resource, error)

	// WriteCAS creates or replaces a resource, atomically and durably, if res.Version is the version stored (empty: if
	// nothing is stored). It returns the resource with its new version, which is opaque, not empty, and was never used
	// before for this key.
	//
	// The id must have a uid, else [ErrInvalid]. The first of these that applies decides:
	//
	//	nothing stored, version empty      created, with the uid given
	//	nothing stored, version not empty  ErrCASFailure
	//	another uid is stored              ErrWrongUid
	//	another version is stored          ErrCASFailure
	//	otherwise                          replaced
	//
	// Any text is a legal version: one that the backend never made simply does not match. A resource that encodes, without
	// its version, to more than 1 MiB (or less, if the URL says so) is [ErrTooLarge].
	//
	// The outcome is never a guess: if a connection dies while the write is under way, the backend finds out what became
	// of it. Only when the database stays out of reach until the deadline is the answer [ErrInconsistent], and only then
	// may the write have happened or not.
	//
	// The group version is not compared; it is replaced with the rest of the resource.
	WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error)

	// DeleteCAS removes the resource with this id if version is the one stored.
	//
	// Nothing stored, or a resource with another uid (also if id has none): nil, and nothing is changed, so a repeated
	// delete succeeds. The same uid under another version: [ErrCASFailure]. What the deleted resource owned stays.
	DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error

	// List returns the resources of a type and tenancy whose name begins with namePrefix (literally), ordered by the bytes
	// of (group, kind, partition, namespace, name).
	//
	// Each unit of the tenancy may be [Wildcard], as may typ.Kind, or typ.Group and typ.Kind together; an empty unit matches
	// only itself. The list is one cut through the store unless the backend's documentation says that its database cannot
	// hold one. It is held in memory: use a [Pager] where it may be long. Where nothing matches it is nil.
	List(ctx context.Context, consistency ReadConsistency, typ UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) ([]*resourcepb.Resource, error)

	// WatchList returns a watch that first gives what List would, taken at a moment between this call and its return, then
	// an end-of-snapshot event, then every change to it for ever. The filter is that of List. The context bounds the call
	// only: the watch lives until it is closed.
	WatchList(ctx context.Context, typ UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (Watch, error)

	// OwnerReferences returns the ids of the resources that name id as their owner, in key order, with their uids and group
	// versions. The id must have a uid: an owner is matched by its key and uid, not by group version. Deleting an owner
	// leaves its references; a reader who has seen an owner's delete event finds here every reference that existed then. Where
	// nothing is owned the result is nil.
	OwnerReferences(ctx context.Context, id *resourcepb.ID) ([]*resourcepb.ID, error)

	// Close ends all watches, waits for the backend's goroutines, and frees its connections. Calls after it return
	// [ErrClosed]; closing twice is fine.
	Close() error
}

// Watch is a stream of events. Next is for one goroutine at a time; Cursor and Close may be called from any.
type Watch interface {
	// Next returns the next event, waiting for one if need be.
	//
	// For each key, events come in the order of commits, each exactly once, none left out: every version that a successful
	// write returned appears, and then the deletion, with the last stored resource. A watch survives the loss of its
	// database for a while (restart, fail-over, a cut network).
	//
	// Where the backend can tell, an event says whether the next one is of the same commit, so that a reader who applies events
	// up to the end of a commit has a state that existed. Bookmark events come only to those who ask: see [Bookmarker].
	//
	// If ctx ends first, its error is returned and nothing is consumed: the next call goes on. [ErrWatchClosed] is final:
	// the watch was closed, or its history is gone, or the database stayed away too long; the cause is wrapped in it. Open
	// a new watch, from a snapshot or from the last cursor. If the backend was closed the error also matches [ErrClosed].
	Next(ctx context.Context) (*resourcepb.WatchEvent, error)

	// Cursor returns a position at or after the last returned event and before the next one, for [Resumer]; "" where the
	// backend cannot resume. Inside a snapshot there is no such position, and what Cursor returns there is refused by
	// WatchFrom with [ErrInvalid].
	Cursor() string

	// Close ends the watch: a waiting Next and all later ones return [ErrWatchClosed], and what was buffered is dropped.
	// Closing twice is fine.
	Close()
}

// UnversionedType is a resource type without its group version: the part that belongs to the key.
type UnversionedType struct {
	Group string
	Kind  string
}

// UnversionedTypeFrom drops the group version of t. A nil t gives the zero value.
func UnversionedTypeFrom(t *resourcepb.Type) UnversionedType {
	return UnversionedType{Group: t.GetGroup(), Kind: t.GetKind()}
}
