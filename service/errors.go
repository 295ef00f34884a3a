package service

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/service/registry"
)

// Domain is the domain of the ErrorInfo in the details of the service's errors. The reason of an ErrorInfo names the error of package storage.
const Domain = "ashlar.dev"

const casFailureText = "CAS operation failed because the given version doesn't match what is stored"

// storeErrors maps errors of a store to status errors; the first match wins. Clients of the compatible API compare the
// texts of ErrNotFound, ErrCASFailure and ErrWrongUid, so these must not change.
var storeErrors = []struct {
	err    error
	code   codes.Code
	reason string
	text   string // "" for the text of the error itself
	logged bool   // the error has details of the database that callers do not get
}{
	// First, because the error of a call with an unknown outcome may contain that of one of its attempts.
	{storage.ErrInconsistent, codes.Unavailable, "INCONSISTENT", storage.ErrInconsistent.Error(), true},
	{storage.ErrNotFound, codes.NotFound, "NOT_FOUND", "resource not found", false},
	{storage.ErrCASFailure, codes.Aborted, "CAS_FAILURE", casFailureText, false},
	{storage.ErrWrongUid, codes.FailedPrecondition, "WRONG_UID", "write failed because the given uid doesn't match what is stored", false},
	{errFenceOutdated, codes.Aborted, "LEASE_LOST", errFenceOutdated.Error(), false},
	{storage.ErrTooLarge, codes.ResourceExhausted, "TOO_LARGE", "", false},
	{storage.ErrInvalid, codes.InvalidArgument, "INVALID", "", false},
	// A retry cannot succeed before the server uses the other store, whose name is for its operator: the log has it.
	{storage.ErrMoved, codes.FailedPrecondition, "MOVED", "the store of this server has moved: restart the server with the URL of the new store", true},
	{storage.ErrFenced, codes.Unavailable, "FENCED", storage.ErrFenced.Error(), true},
	{storage.ErrClosed, codes.Unavailable, "CLOSED", storage.ErrClosed.Error(), true},
	{storage.ErrCompacted, codes.OutOfRange, "COMPACTED", storage.ErrCompacted.Error(), false},
	{storage.ErrFutureRevision, codes.OutOfRange, "FUTURE_REVISION", storage.ErrFutureRevision.Error(), false},
	{storage.ErrWatchClosed, codes.Aborted, "WATCH_CLOSED", storage.ErrWatchClosed.Error(), true},
}

// errDraining ends the streams of a server that drains.
var errDraining = status.Error(codes.Unavailable, "the server is shutting down: retry, or connect to another server")

// toStatus converts an error of the store to a status error. Errors without a mapping are logged and become internal errors. operation
// describes the failed operation. If the server drains, the error of a stream is errDraining.
func (s *Server) toStatus(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(context.Cause(ctx), errDraining) {
		return errDraining
	}
	if isStatus(err) {
		return err
	}
	if done := ctx.Err(); done != nil {
		return status.FromContextError(done).Err() // the cause of whatever else failed
	}
	if !errors.Is(err, storage.ErrInconsistent) { // otherwise the error of an attempt is not that of the call
		if decided := s.resourceStatus(ctx, operation, err); decided != nil {
			return decided
		}
	}
	for _, e := range storeErrors {
		if errors.Is(err, e.err) {
			text := e.text
			if text == "" {
				text = err.Error()
			}
			if e.logged {
				s.opts.Logger.WarnContext(ctx, "the store failed", "doing", operation, "error", err)
			}
			return reasonError(e.code, e.reason, text)
		}
	}
	return s.internalError(ctx, operation, err)
}

// resourceStatus converts an error about the stored resource to a status error. It returns nil for other errors.
func (s *Server) resourceStatus(ctx context.Context, operation string, err error) error {
	var mismatch storage.GroupVersionMismatchError
	if errors.As(err, &mismatch) {
		return reasonError(codes.InvalidArgument, "GROUP_VERSION_MISMATCH", mismatch.Error())
	}
	var unconverted *registry.ConversionError
	if errors.As(err, &unconverted) {
		if unconverted.IsWritten {
			return refusal("%v", unconverted)
		}
		return reasonError(codes.FailedPrecondition, "CONVERSION", unconverted.Error())
	}
	var damaged *storage.DamagedError
	if errors.As(err, &damaged) {
		s.opts.Logger.ErrorContext(ctx, "the store holds damaged data", "doing", operation, "error", err)
		return reasonError(codes.DataLoss, "DAMAGED", damaged.Error())
	}
	return nil
}

// isStatus reports whether an error is itself a status error. An error of a database that is called by gRPC may wrap one.
func isStatus(err error) bool {
	_, ok := err.(interface{ GRPCStatus() *status.Status })
	return ok
}

// hookStatus converts an error of a hook to a status error: a denial, or an internal error, even if the hook returns the status of a call of
// its own.
func (s *Server) hookStatus(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	var unconverted *registry.ConversionError
	switch code := status.Code(err); {
	case isStatus(err) && (code == codes.PermissionDenied || code == codes.Unauthenticated):
		return err
	case errors.Is(err, registry.ErrDenied):
		return reasonError(codes.PermissionDenied, "DENIED", err.Error())
	case errors.Is(err, ErrUnauthenticated):
		return reasonError(codes.Unauthenticated, "UNAUTHENTICATED", err.Error())
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.As(err, &unconverted):
		// The hook has not decided whether the caller may know the resource.
		s.opts.Logger.ErrorContext(ctx, "a resource cannot be converted for a hook", "doing", operation, "error", err)
		return reasonError(codes.FailedPrecondition, "CONVERSION", operation+": a stored resource cannot be converted; the server's log has its name")
	}
	return s.internalError(ctx, operation, err)
}

// internalError logs an error and returns a status error without its text.
func (s *Server) internalError(ctx context.Context, operation string, err error) error {
	s.opts.Logger.ErrorContext(ctx, "the resource service failed", "doing", operation, "error", err)
	return status.Errorf(codes.Internal, "%s: an internal error; the server's log has the details", operation)
}

// reasonError is a status error with a machine-readable reason in its details.
func reasonError(code codes.Code, reason, text string) error {
	s := status.New(code, text)
	if with, err := s.WithDetails(&errdetails.ErrorInfo{Domain: Domain, Reason: reason}); err == nil {
		s = with
	}
	return s.Err()
}

// invalid is the error of a request that is invalid whatever is stored.
func invalid(format string, args ...any) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf(format, args...))
}

// refusal is the error of a request whose parts are valid, but not together or with what is stored. Its reason is that of storage.ErrInvalid.
func refusal(format string, args ...any) error {
	return reasonError(codes.InvalidArgument, "INVALID", fmt.Sprintf(format, args...))
}
