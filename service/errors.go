package service

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/registry"
)

// Domain is the domain of the ErrorInfo in the details of an error of the service. Its reason names the storage package's error.
const Domain = "ashlar.dev"

// verdicts are the errors of a store that callers are told of, the first that fits. Clients of the API that this one is compatible with
// compare the texts of the first three, so these must stay as they are.
var verdicts = []struct {
	err    error
	code   codes.Code
	reason string
	text   string // of the error itself if it is empty
}{
	{storage.ErrNotFound, codes.NotFound, "NOT_FOUND", "resource not found"},
	{storage.ErrCASFailure, codes.Aborted, "CAS_FAILURE", "CAS operation failed because the given version doesn't match what is stored"},
	{storage.ErrWrongUid, codes.FailedPrecondition, "WRONG_UID", "write failed because the given uid doesn't match what is stored"},
	{storage.ErrTooLarge, codes.ResourceExhausted, "TOO_LARGE", ""},
	{storage.ErrInvalid, codes.InvalidArgument, "INVALID", ""},
	{storage.ErrFenced, codes.Unavailable, "FENCED", ""},
	{storage.ErrClosed, codes.Unavailable, "CLOSED", ""},
	{storage.ErrCompacted, codes.OutOfRange, "COMPACTED", ""},
	{storage.ErrWatchClosed, codes.Aborted, "WATCH_CLOSED", ""},
	{storage.ErrInconsistent, codes.Unavailable, "INCONSISTENT", ""},
	{ErrUnauthenticated, codes.Unauthenticated, "UNAUTHENTICATED", ""},
	{registry.ErrDenied, codes.PermissionDenied, "DENIED", ""},
}

// told returns an error of the store, or of a hook, as callers are told of it. What has no verdict is an internal error, and logged. doing
// says what the service was about to do.
func (s *Server) told(ctx context.Context, doing string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	if over := ctx.Err(); over != nil {
		return status.FromContextError(over).Err() // the caller's own time is over, whatever else went wrong because of it
	}
	var mismatch storage.GroupVersionMismatchError
	if errors.As(err, &mismatch) {
		return refusal(codes.InvalidArgument, "GROUP_VERSION_MISMATCH", mismatch.Error())
	}
	var damaged *storage.DamagedError
	if errors.As(err, &damaged) {
		s.opts.Logger.ErrorContext(ctx, "the store holds damaged data", "doing", doing, "error", err)
		return refusal(codes.DataLoss, "DAMAGED", err.Error())
	}
	for _, v := range verdicts {
		if errors.Is(err, v.err) {
			text := v.text
			if text == "" {
				text = err.Error()
			}
			return refusal(v.code, v.reason, text)
		}
	}
	s.opts.Logger.ErrorContext(ctx, "the resource service failed", "doing", doing, "error", err)
	return status.Errorf(codes.Internal, "%s: %v", doing, err)
}

// refusal is an error with a reason for programs in its details.
func refusal(code codes.Code, reason, text string) error {
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
