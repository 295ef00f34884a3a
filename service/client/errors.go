package client

import (
	"errors"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/service"
)

// errorsByReason maps the service's reasons to the errors of a store.
var errorsByReason = map[string]error{
	"NOT_FOUND": storage.ErrNotFound, "CAS_FAILURE": storage.ErrCASFailure, "WRONG_UID": storage.ErrWrongUid, "TOO_LARGE": storage.ErrTooLarge,
	"INVALID": storage.ErrInvalid, "FENCED": storage.ErrFenced, "MOVED": errMoved, "CLOSED": storage.ErrInconsistent, "COMPACTED": storage.ErrCompacted,
	"WATCH_CLOSED": storage.ErrWatchClosed, "GROUP_VERSION_MISMATCH": errMismatch, "INCONSISTENT": storage.ErrInconsistent,
	"FUTURE_REVISION": storage.ErrFutureRevision, "CONVERSION": ErrConversion,
}

// ErrConversion reports that a stored resource cannot be converted to the requested group version. The error names the resource.
var ErrConversion = errors.New("a stored resource cannot be converted to the requested group version")

// errMoved reports that the server's store has moved. Only the server's operator learns where.
var errMoved = &storage.MovedError{Target: "another store, which the log of the server names"}

// errMismatch reports that a resource is stored under another group version. Read turns it into the store's own error.
var errMismatch = errors.New("stored under another group version")

// errorsByCode maps gRPC codes without a reason to the errors of a store.
var errorsByCode = map[codes.Code]error{
	codes.NotFound: storage.ErrNotFound, codes.InvalidArgument: storage.ErrInvalid, codes.OutOfRange: storage.ErrCompacted,
	codes.Aborted: storage.ErrCASFailure,
}

// reasonOf returns the reason that the service has given for a status. given is false for a status of gRPC or of a proxy.
func reasonOf(s *status.Status) (reason string, given bool) {
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok && info.GetDomain() == service.Domain {
			return info.GetReason(), true
		}
	}
	return "", false
}

// errorOf returns the error of a store for a status without a reason, or nil. ResourceExhausted has two causes: gRPC refused a message for its size,
// or a proxy has reset the stream, perhaps after the call. Only the texts differ.
func errorOf(s *status.Status) error {
	if s.Code() == codes.ResourceExhausted && strings.Contains(s.Message(), "message larger than max") {
		return storage.ErrTooLarge
	}
	return errorsByCode[s.Code()]
}

// ambiguousCodes are the codes that leave the outcome unknown: the connection broke, or the server failed during the call.
var ambiguousCodes = map[codes.Code]bool{
	codes.Unavailable: true, codes.Canceled: true, codes.Unknown: true, codes.Internal: true, codes.ResourceExhausted: true,
}

// plainErrors are errors whose message the service takes from a compatible API. The store's own message replaces it.
var plainErrors = map[error]bool{storage.ErrNotFound: true, storage.ErrCASFailure: true, storage.ErrWrongUid: true}

// serverError is an error of a store with the message of the server.
type serverError struct {
	text string
	kind error
}

func (t *serverError) Error() string { return t.text }
func (t *serverError) Unwrap() error { return t.kind }
