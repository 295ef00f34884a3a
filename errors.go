package storage

import (
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage/resourcepb"
)

// The errors of the contract. Backends wrap them with the operation and the key: test them with errors.Is.
var (
	// ErrNotFound reports that no resource is stored under the id, or that the stored uid differs from the requested one.
	ErrNotFound = errors.New("resource not found")

	// ErrCASFailure reports that the given version is not the stored one, or that a resource exists or is absent unexpectedly.
	// Nothing was changed. Read again, decide again and write again.
	ErrCASFailure = errors.New("compare-and-swap failed: the stored version differs")

	// ErrWrongUid reports that the stored resource has another uid: it was deleted and created again. Nothing was changed. Do not
	// retry with the same uid.
	ErrWrongUid = errors.New("the stored resource has another uid")

	// ErrInconsistent reports that the backend could not reach a required part (a primary, a quorum, the database) before the
	// deadline. A read fails rather than return old data. A write may or may not have happened: read to find out. Retry later.
	ErrInconsistent = errors.New("the database could not give a consistent answer")

	// ErrInvalid reports bad input. Nothing was sent to the database. Do not retry.
	ErrInvalid = errors.New("invalid argument")

	// ErrTooLarge reports that a resource or a transaction exceeds a limit of the backend. Nothing was changed.
	ErrTooLarge = errors.New("too large")

	// ErrWatchClosed is the final error of a watch: the watch was closed, or it cannot continue without a gap. Open a new one, from
	// a fresh snapshot or from the last cursor.
	ErrWatchClosed = errors.New("watch closed")

	// ErrCompacted reports that the history or the listing that a cursor or a continue token needs was discarded. List again.
	ErrCompacted = errors.New("history has been compacted")

	// ErrFutureRevision reports that the store has not reached the requested revision yet.
	ErrFutureRevision = errors.New("the revision does not exist yet")

	// ErrClosed reports that the backend was closed.
	ErrClosed = errors.New("backend closed")

	// ErrNewerSchema reports that a newer program wrote the store. Nothing was changed. Upgrade this program.
	ErrNewerSchema = errors.New("the store's schema is newer than this program")

	// ErrNoStore reports that an opener found no store and that create=off in its URL forbids creating one. Nothing was changed.
	ErrNoStore = errors.New("the store does not exist")

	// ErrFenced reports that the store refuses writes because its data is being moved, from or to another store, which the text names.
	// Nothing was changed. Retry later, or open the other store.
	ErrFenced = errors.New("the store is closed for writing")

	// ErrMoved reports that the data has moved to another store. The error is a [*MovedError], which names that store. Open it.
	ErrMoved = errors.New("the store has moved")
)

// MovedError is returned, as *MovedError, by a store whose data has moved to another store: from writes, strong reads, lists and pages, from
// new watches with a snapshot, and as the last error of a watch, after the last change of the store. It matches [ErrMoved], and [ErrFenced] as
// well. Eventual reads return the store's last state.
type MovedError struct {
	// Target is the display name of the other store, without credentials.
	Target string
	// Identity identifies the other store, for migrations.
	Identity string
	// Cursor is a position of the other store, for [Resumer]: a watch from there returns the changes after the last change of this
	// store. If the other store lists without a snapshot, some changes may be repeated. It is "" if the other store cannot resume
	// watches, or if this store cannot prove that a watch has returned every change: list the other store.
	Cursor string
}

// Error implements the error interface.
func (e *MovedError) Error() string { return "the store has moved to " + e.Target }

// Is implements the interface of errors.Is.
func (e *MovedError) Is(target error) bool { return target == ErrMoved || target == ErrFenced }

// GroupVersionMismatchError is returned, by value, from Read if the resource is stored under another group version than the
// requested one. It contains the stored resource, which the caller may convert.
type GroupVersionMismatchError struct {
	// RequestedType is the type in the requested id.
	RequestedType *resourcepb.Type
	// Stored is the resource as stored.
	Stored *resourcepb.Resource
}

// Error implements the error interface.
func (e GroupVersionMismatchError) Error() string {
	return fmt.Sprintf("resource %q of %s/%s is stored with group version %q, not with %q",
		e.Stored.GetId().GetName(), e.RequestedType.GetGroup(), e.RequestedType.GetKind(),
		e.Stored.GetId().GetType().GetGroupVersion(), e.RequestedType.GetGroupVersion())
}

// DamagedError is returned, as *DamagedError, if the bytes stored under a key are not the resource that belongs there, because
// they were corrupted or changed by another program. Do not retry. Write the resource again or delete it, with the ID and the
// Version of the error. Until then, lists and snapshots that include the key fail. A watch that reads such a change ends with
// ErrCompacted.
type DamagedError struct {
	// ID is the key. Read adds the uid if the database still has it. Otherwise any uid may be written over the damaged resource, and
	// DeleteCAS accepts the ID as it is.
	ID *resourcepb.ID
	// Version is the version of the damaged resource, which WriteCAS and DeleteCAS accept while it is stored; "" if there is none.
	Version string
	// Data is what the database stores under the key, as far as it could be read, for a repair by hand. It may contain secrets, and it is
	// no part of the error's text.
	Data []byte
	// Err is the cause.
	Err error
}

// Error implements the error interface.
func (e *DamagedError) Error() string {
	return fmt.Sprintf("the stored resource %q of %s/%s in %q/%q is damaged: %v", e.ID.GetName(), e.ID.GetType().GetGroup(),
		e.ID.GetType().GetKind(), e.ID.GetTenancy().GetPartition(), e.ID.GetTenancy().GetNamespace(), e.Err)
}

// Unwrap returns Err.
func (e *DamagedError) Unwrap() error { return e.Err }
