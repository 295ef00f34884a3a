package etcdserver

import (
	"context"
	"errors"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
)

// errStopped says that the server was closed.
var errStopped = rpctypes.ErrGRPCStopped

// failed returns a backend's error as etcd would say it. Clients compare the texts.
func failed(ctx context.Context, err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	switch {
	case errors.Is(err, storage.ErrCompacted):
		return rpctypes.ErrGRPCCompacted
	case errors.Is(err, storage.ErrFutureRevision):
		return rpctypes.ErrGRPCFutureRev
	case errors.Is(err, storage.ErrTooLarge):
		return rpctypes.ErrGRPCRequestTooLarge
	case ctx.Err() != nil:
		return status.FromContextError(ctx.Err()).Err()
	case errors.Is(err, storage.ErrClosed):
		return rpctypes.ErrGRPCStopped
	case errors.Is(err, storage.ErrInconsistent), errors.Is(err, context.DeadlineExceeded):
		return rpctypes.ErrGRPCTimeout // a write may have happened all the same
	case errors.Is(err, storage.ErrInvalid):
		return status.Error(codes.InvalidArgument, "etcdserver: "+err.Error())
	case errors.Is(err, storage.ErrFenced):
		return status.Error(codes.FailedPrecondition, "etcdserver: "+err.Error())
	}
	return status.Error(codes.Unknown, "etcdserver: "+err.Error())
}
