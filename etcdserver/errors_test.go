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

// toStatus never reports a write with an unknown outcome as failed, whatever the driver's error. A watch ends with a status after which
// clients resume it.
func TestErrorsThatLeaveTheOutcomeOpen(t *testing.T) {
	t.Parallel()
	wrap := func(sentinel, cause error) error { return fmt.Errorf("%w: commit: %w", sentinel, cause) }
	for _, c := range []struct {
		err  error
		want error
	}{
		{wrap(storage.ErrInconsistent, status.Error(codes.FailedPrecondition, "driver error")), rpctypes.ErrGRPCTimeout},
		{wrap(storage.ErrInconsistent, status.Error(codes.Unavailable, "there is no connection available")), rpctypes.ErrGRPCTimeout},
		{wrap(storage.ErrInconsistent, storage.ErrCompacted), rpctypes.ErrGRPCTimeout},
		{wrap(storage.ErrInconsistent, storage.ErrTooLarge), rpctypes.ErrGRPCTimeout},
		{wrap(storage.ErrClosed, storage.ErrInconsistent), rpctypes.ErrGRPCStopped},
		{wrap(storage.ErrWatchClosed, errors.New("the database is away")), status.Error(codes.Unavailable, "")},
		{wrap(storage.ErrWatchClosed, storage.ErrClosed), rpctypes.ErrGRPCStopped},
		{wrap(storage.ErrCompacted, status.Error(codes.Unknown, "driver error")), rpctypes.ErrGRPCCompacted},
		{rpctypes.ErrGRPCLeaseNotFound, rpctypes.ErrGRPCLeaseNotFound},
	} {
		got, want := status.Convert(toStatus(context.Background(), c.err)), status.Convert(c.want)
		if got.Code() != want.Code() || want.Message() != "" && got.Message() != want.Message() {
			t.Errorf("%v is answered with %v, expected %v", c.err, got, want)
		}
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if got := status.Code(toStatus(cancelled, wrap(storage.ErrInconsistent, context.Canceled))); got != codes.Canceled {
		t.Errorf("a cancelled call is answered with %v", got)
	}
}
