package client

import (
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage"
)

// errorsByReason are the store's errors by the reasons that the service gives.
var errorsByReason = map[string]error{
	"NOT_FOUND": storage.ErrNotFound, "CAS_FAILURE": storage.ErrCASFailure, "WRONG_UID": storage.ErrWrongUid, "TOO_LARGE": storage.ErrTooLarge,
	"INVALID": storage.ErrInvalid, "FENCED": storage.ErrFenced, "CLOSED": storage.ErrInconsistent, "COMPACTED": storage.ErrCompacted,
	"WATCH_CLOSED": storage.ErrWatchClosed, "GROUP_VERSION_MISMATCH": errMismatch, "INCONSISTENT": storage.ErrInconsistent,
	"FUTURE_REVISION": storage.ErrFutureRevision,
}

// errMismatch says that a resource is stored under another group version. Read makes the store's own error of it.
var errMismatch = errors.New("stored under another group version")

// errorsByCode are the store's errors for those that come without a reason.
var errorsByCode = map[codes.Code]error{
	codes.NotFound: storage.ErrNotFound, codes.InvalidArgument: storage.ErrInvalid, codes.ResourceExhausted: storage.ErrTooLarge,
	codes.OutOfRange: storage.ErrCompacted, codes.Aborted: storage.ErrCASFailure,
}

// ambiguousCodes are the codes of answers that say nothing of what was done: the connection broke, or the server failed on the way.
var ambiguousCodes = map[codes.Code]bool{
	codes.Unavailable: true, codes.DeadlineExceeded: true, codes.Canceled: true, codes.Unknown: true, codes.Internal: true,
}

// plainErrors are the errors that the service tells in words of the API that it is compatible with; a store has its own.
var plainErrors = map[error]bool{storage.ErrNotFound: true, storage.ErrCASFailure: true, storage.ErrWrongUid: true}

// serverError is an error of the server: one of the store's, in the server's words.
type serverError struct {
	text string
	kind error
}

func (t *serverError) Error() string { return t.text }
func (t *serverError) Unwrap() error { return t.kind }
