package etcdserver

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
)

// A write with an unknown outcome never gets an error that says that it failed, whatever the driver's error. Clients resume their watches.
func TestErrorsThatLeaveTheOutcomeOpen(t *testing.T) {
	t.Parallel()
	of := func(sentinel, cause error) error { return fmt.Errorf("%w: commit: %w", sentinel, cause) }
	for _, c := range []struct {
		err  error
		want error
	}{
		{of(storage.ErrInconsistent, status.Error(codes.FailedPrecondition, "driver error")), rpctypes.ErrGRPCTimeout},
		{of(storage.ErrInconsistent, status.Error(codes.Unavailable, "there is no connection available")), rpctypes.ErrGRPCTimeout},
		{of(storage.ErrInconsistent, storage.ErrCompacted), rpctypes.ErrGRPCTimeout},
		{of(storage.ErrInconsistent, storage.ErrTooLarge), rpctypes.ErrGRPCTimeout},
		{of(storage.ErrClosed, storage.ErrInconsistent), rpctypes.ErrGRPCStopped},
		{of(storage.ErrWatchClosed, errors.New("the database is away")), status.Error(codes.Unavailable, "")},
		{of(storage.ErrWatchClosed, storage.ErrClosed), rpctypes.ErrGRPCStopped},
		{of(storage.ErrCompacted, status.Error(codes.Unknown, "driver error")), rpctypes.ErrGRPCCompacted},
		{rpctypes.ErrGRPCLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
	} {
		got, want := status.Convert(toStatus(context.Background(), c.err)), status.Convert(c.want)
		if got.Code() != want.Code() || want.Message() != "" && got.Message() != want.Message() {
			t.Errorf("%v is answered with %v, expected %v", c.err, got, want)
		}
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if got := status.Code(toStatus(cancelled, of(storage.ErrInconsistent, context.Canceled))); got != codes.Canceled {
		t.Errorf("a cancelled call is answered with %v", got)
	}
}
