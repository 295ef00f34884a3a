package telemetry

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"

	"github.com/ashlar-dev/storage"
)

// Operation is a method of the contract, the value of the attribute db.operation.name.
type Operation uint8

// The operations.
const (
	Read Operation = iota
	Write
	Delete
	Commit
	List
	ListPage
	OwnerReferences
	Watch
	WatchFrom
	Scan
	Swap
	Follow
	Revisions
	Compact
	Note
	Fence
	ReadRows
	LoadRows
	operationCount
)

var operationNames = [operationCount]string{
	"read", "write", "delete", "commit", "list", "list_page", "owner_references", "watch", "watch_from", "scan", "swap", "follow",
	"revisions", "compact", "note", "fence", "read_rows", "load_rows",
}

// String returns the operation's name in metrics, logs and traces.
func (o Operation) String() string { return operationNames[o] }

// changes reports whether the operation may change the store.
func (o Operation) changes() bool {
	switch o {
	case Write, Delete, Commit, Swap, Compact, Note, Fence, LoadRows:
		return true
	}
	return false
}

// errorTypes are the values of the attribute error.type. The first match is used.
var errorTypes = []struct {
	name string
	is   []error
}{
	{"", nil}, // no error
	{"inconsistent", []error{storage.ErrInconsistent}},
	{"closed", []error{storage.ErrClosed}},
	{"conflict", []error{storage.ErrCASFailure}},
	{"wrong_uid", []error{storage.ErrWrongUid}},
	{"not_found", []error{storage.ErrNotFound}},
	{"fenced", []error{storage.ErrFenced}},
	{"compacted", []error{storage.ErrCompacted}},
	{"future_revision", []error{storage.ErrFutureRevision}},
	{"too_large", []error{storage.ErrTooLarge}},
	{"invalid", []error{storage.ErrInvalid}},
	{"canceled", []error{context.Canceled, context.DeadlineExceeded}},
	{"group_version_mismatch", nil},
	{"damaged", nil},
	{"_OTHER", nil},
}

// The indexes of the last three entries of errorTypes.
var (
	mismatchType = len(errorTypes) - 3
	damagedType  = len(errorTypes) - 2
	otherType    = len(errorTypes) - 1
)

// ErrorAttribute returns the attribute error.type of an error, and no attribute for nil.
func ErrorAttribute(err error) []attribute.KeyValue {
	if err == nil {
		return nil
	}
	return []attribute.KeyValue{attribute.String(ErrorType, errorTypes[errorTypeOf(err)].name)}
}

// errorTypeOf returns the index of an error's type.
func errorTypeOf(err error) int {
	if err == nil {
		return 0
	}
	for i := range errorTypes {
		for _, is := range errorTypes[i].is {
			if errors.Is(err, is) {
				return i
			}
		}
	}
	var mismatch storage.GroupVersionMismatchError
	var damaged *storage.DamagedError
	switch {
	case errors.As(err, &mismatch):
		return mismatchType
	case errors.As(err, &damaged):
		return damagedType
	}
	return otherType
}
