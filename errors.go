package storage

import (
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage/resourcepb"
)

// The errors of the contract. Backends wrap them with the operation and the key, so test them with errors.Is.
var (
	// ErrNotFound says that no resource is stored under the id, or one with another uid than the one asked for.
	ErrNotFound = errors.New("resource not found")

	// ErrCASFailure says that the version given is not the one stored: another writer was faster, or the resource is there
	// where it should not be (or the other way round). Nothing was changed. Read again, decide again, write again.
	ErrCASFailure = errors.New("compare-and-swap failed: the stored version is another")

	// ErrWrongUid says that the resource stored under this key is not the one the caller means: it was deleted and created
	// anew. Nothing was changed. Do not retry with the same uid.
	ErrWrongUid = errors.New("the stored resource has another uid")

	// ErrInconsistent says that the backend could not reach what it needs (a primary, a quorum, the database at all) within
	// the deadline, and that it rather fails than answers with old data. After a write it means that the write may or may
	// not have happened: read to find out. Retry later.
	ErrInconsistent = errors.New("the database could not give a consistent answer")

	// ErrInvalid says that the caller's input is wrong. Nothing was sent to the database. Retrying cannot help.
	ErrInvalid = errors.New("invalid argument")

	// ErrTooLarge says that a resource, or a transaction, is larger than the backend takes. Nothing was changed.
	ErrTooLarge = errors.New("too large")

	// ErrWatchClosed is the last word of a watch: it was closed, or it cannot go on without a gap. Open a new one, from a
	// fresh snapshot or from the last cursor.
	ErrWatchClosed = errors.New("watch closed")

	// ErrCompacted says that the history, or the listing, which a cursor or a continue token points into is gone. List again.
	ErrCompacted = errors.New("history has been compacted")

	// ErrFutureRevision says that the store has not come to the revision yet that a Historian was asked for.
	ErrFutureRevision = errors.New("the revision is not there yet")

	// ErrClosed says that the backend was closed.
	ErrClosed = errors.New("backend closed")

	// ErrNewerSchema says that the store was written by a newer program than this one, which therefore keeps its hands off.
	// Upgrade the program.
	ErrNewerSchema = errors.New("the store's schema is newer than this program")

	// ErrFenced says that the store takes no more writes because its data was moved to another one, which the text names.
	// Nothing was changed. Reads, lists and watches go on. Open the other store.
	ErrFenced = errors.New("the store is closed for writing")
)

// GroupVersionMismatchError is returned, by value, from Read when the resource is stored under another group version than
// the one asked for. It carries the stored resource, which the caller may translate.
type GroupVersionMismatchError struct {
	// RequestedType is the type in the id that was asked for.
	RequestedType *resourcepb.Type
	// Stored is the resource as it is stored.
	Stored *resourcepb.Resource
}

// Error implements the error interface.
func (e GroupVersionMismatchError) Error() string {
	return fmt.Sprintf("resource %q of %s/%s is stored with group version %q, not with %q",
		e.Stored.GetId().GetName(), e.RequestedType.GetGroup(), e.RequestedType.GetKind(),
		e.Stored.GetId().GetType().GetGroupVersion(), e.RequestedType.GetGroupVersion())
}

// DamagedError is returned, as *DamagedError, where the database holds something under a key that is not the resource which
// belongs there: it broke, or was changed behind the backend's back. Retrying cannot help. Write the resource anew or delete it,
// by the ID and the Version in the error; a list or a snapshot over the key fails until then, and a watch that meets such a
// change ends, with ErrCompacted.
type DamagedError struct {
	// ID is the key. Read gives the uid, too, where the database still tells it; where it does not, any uid may be written over
	// what is damaged, and DeleteCAS takes the ID as it is.
	ID *resourcepb.ID
	// Version is the version of what is damaged, which WriteCAS and DeleteCAS take as long as it is stored; "" if there is none.
	Version string
	// Err says what is wrong.
	Err error
}

// Error implements the error interface.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("what is stored for %q of %s/%s in %q/%q is damaged: %v", e.ID.GetName(), e.ID.GetType().GetGroup(),
		e.ID.GetType().GetKind(), e.ID.GetTenancy().GetPartition(), e.ID.GetTenancy().GetNamespace(), e.Err)
}

// Unwrap returns what is wrong.
func (e *DamagedError) Unwrap() error { return e.Err }
