package etcdserver

import (
	"context"
	"errors"
	"fmt"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
)

// errStopped reports that the server was closed.
var errStopped = rpctypes.ErrGRPCStopped

// toStatus converts an error of the backend to etcd's error. Clients compare the texts, and retry by themselves only after Unavailable.
func toStatus(ctx context.Context, err error) error {
	if _, ok := err.(interface{ GRPCStatus() *status.Status }); ok {
		return err // an error of etcd's API; a wrapped one comes from a database driver
	}
	switch {
	case errors.Is(err, storage.ErrClosed) && ctx.Err() == nil:
		return rpctypes.ErrGRPCStopped
	case errors.Is(err, storage.ErrInconsistent) && ctx.Err() == nil:
		return rpctypes.ErrGRPCTimeout // a write may have succeeded
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, storage.ErrCompacted):
		return rpctypes.ErrGRPCCompacted
	case errors.Is(err, storage.ErrFutureRevision):
		return rpctypes.ErrGRPCFutureRev
	case errors.Is(err, storage.ErrTooLarge):
		return rpctypes.ErrGRPCRequestTooLarge
	case errors.Is(err, context.DeadlineExceeded):
		return rpctypes.ErrGRPCTimeout
	case errors.Is(err, storage.ErrWatchClosed):
		return status.Error(codes.Unavailable, "etcdserver: "+err.Error())
	case errors.Is(err, storage.ErrInvalid):
		return status.Error(codes.InvalidArgument, "etcdserver: "+err.Error())
	case errors.Is(err, storage.ErrFenced):
		return status.Error(codes.FailedPrecondition, "etcdserver: "+err.Error())
	}
	return status.Error(codes.Unknown, "etcdserver: "+err.Error())
}

// afterCommit marks an error that occurred after the changes of a transaction, so that the caller does not conclude that the transaction
// failed.
func afterCommit(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: the transaction succeeded, but its reads failed: %s", storage.ErrInconsistent, err.Error())
	}
	return err
}
