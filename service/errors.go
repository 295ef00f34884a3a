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

// Domain is the domain of the ErrorInfo in the details of an error of the service. Its reason names the storage package's error.
const Domain = "ashlar.dev"

const casFailureText = "CAS operation failed because the given version doesn't match what is stored"

// storeErrors are the errors of a store that callers are told of, the first that fits. Clients of the API that this one is compatible with
// compare the texts of the first three, so these must stay as they are.
var storeErrors = []struct {
	err    error
	code   codes.Code
	reason string
	text   string // of the error itself if it is empty
	logged bool   // the error says of the database what callers are not told
}{
	{storage.ErrNotFound, codes.NotFound, "NOT_FOUND", "resource not found", false},
	{storage.ErrCASFailure, codes.Aborted, "CAS_FAILURE", casFailureText, false},
	{storage.ErrWrongUid, codes.FailedPrecondition, "WRONG_UID", "write failed because the given uid doesn't match what is stored", false},
	{storage.ErrTooLarge, codes.ResourceExhausted, "TOO_LARGE", "", false},
	{storage.ErrInvalid, codes.InvalidArgument, "INVALID", "", false},
	{storage.ErrFenced, codes.Unavailable, "FENCED", storage.ErrFenced.Error(), true},
	{storage.ErrClosed, codes.Unavailable, "CLOSED", storage.ErrClosed.Error(), true},
	{storage.ErrCompacted, codes.OutOfRange, "COMPACTED", storage.ErrCompacted.Error(), false},
	{storage.ErrFutureRevision, codes.OutOfRange, "FUTURE_REVISION", storage.ErrFutureRevision.Error(), false},
	{storage.ErrWatchClosed, codes.Aborted, "WATCH_CLOSED", storage.ErrWatchClosed.Error(), true},
	{storage.ErrInconsistent, codes.Unavailable, "INCONSISTENT", storage.ErrInconsistent.Error(), true},
}

// toStatus returns an error of the store as callers are toStatus of it. What has no verdict is an internal error, and logged. doing says what the
// service was about to do.
func (s *Server) toStatus(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if isStatus(err) {
		return err
	}
	if over := ctx.Err(); over != nil {
		return status.FromContextError(over).Err() // the caller's own time is over, whatever else went wrong because of it
	}
	var mismatch storage.GroupVersionMismatchError
	if errors.As(err, &mismatch) {
		return reasonError(codes.InvalidArgument, "GROUP_VERSION_MISMATCH", mismatch.Error())
	}
	var damaged *storage.DamagedError
	if errors.As(err, &damaged) {
		s.opts.Logger.ErrorContext(ctx, "the store holds damaged data", "doing", doing, "error", err)
		return reasonError(codes.DataLoss, "DAMAGED", damaged.Error())
	}
	for _, v := range storeErrors {
		if errors.Is(err, v.err) {
			text := v.text
			if text == "" {
				text = err.Error()
			}
			if v.logged {
				s.opts.Logger.WarnContext(ctx, "the store did not answer as it should", "doing", doing, "error", err)
			}
			return reasonError(v.code, v.reason, text)
		}
	}
	return s.internalError(ctx, doing, err)
}

// isStatus reports whether an error is an answer to a caller itself. Errors of databases that are called by gRPC may wrap one.
func isStatus(err error) bool {
	_, is := err.(interface{ GRPCStatus() *status.Status })
	return is
}

// hookStatus returns an error of a hook as callers are told of it: that it refuses the caller, or else an internal error, whatever the hook
// itself has called to decide.
func (s *Server) hookStatus(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	switch code := status.Code(err); {
	case isStatus(err) && (code == codes.PermissionDenied || code == codes.Unauthenticated):
		return err
	case errors.Is(err, registry.ErrDenied):
		return reasonError(codes.PermissionDenied, "DENIED", err.Error())
	case errors.Is(err, ErrUnauthenticated):
		return reasonError(codes.Unauthenticated, "UNAUTHENTICATED", err.Error())
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	}
	return s.internalError(ctx, doing, err)
}

// internalError logs an error, and returns what callers are told instead.
func (s *Server) internalError(ctx context.Context, doing string, err error) error {
	s.opts.Logger.ErrorContext(ctx, "the resource service failed", "doing", doing, "error", err)
	return status.Errorf(codes.Internal, "%s: an internal error, which the server's log has", doing)
}

// reasonError is an error with a reason for programs in its details.
func reasonError(code codes.Code, reason, text string) error {
	s := status.New(code, text)
	if with, err := s.WithDetails(&errdetails.ErrorInfo{Domain: Domain, Reason: reason}); err == nil {
		s = with
	}
	return s.Err()
}

// invalid is an error for a request that is wrong whatever is stored.
func invalid(format string, args ...any) error {
	return status.Error(codes.InvalidArgument, fmt.Sprintf(format, args...))
}
