package etcd

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// refusing is a cluster where every comparison of a transaction fails. It stores only the given keys, at revision 1.
type refusing struct {
	pb.KVClient
	stored       []string
	beforeAnswer func() error // called before each answer; an error replaces the answer
	txns         atomic.Int64
}

func (r *refusing) Txn(ctx context.Context, req *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	r.txns.Add(1)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if r.beforeAnswer != nil {
		if err := r.beforeAnswer(); err != nil {
			return nil, err
		}
	}
	resp := &pb.TxnResponse{Header: &pb.ResponseHeader{Revision: 1}}
	for _, op := range req.Failure {
		get := op.GetRequestRange()
		found := &pb.RangeResponse{}
		if slices.Contains(r.stored, string(get.Key)) {
			found.Kvs = []*mvccpb.KeyValue{{Key: get.Key, Value: []byte("target"), ModRevision: 1}}
		}
		resp.Responses = append(resp.Responses, &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: found}})
	}
	return resp, nil
}

var writes = map[string][]string{"lone mutation": {"a"}, "transaction": {"a", "b"}}

// Apply returns an error at once if a comparison fails although the values read with it match: a retry would fail as well.
func TestRefusedComparisonThatHolds(t *testing.T) {
	t.Parallel()
	for name, keys := range writes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &refusing{}
			err := newTestHandle(t, server).Apply(fixture.Context(t), creations(keys...))
			if !errors.Is(err, storage.ErrInconsistent) || errors.Is(err, context.DeadlineExceeded) || server.txns.Load() != 1 {
				t.Errorf("Apply returned %v after %d transactions, expected ErrInconsistent after 1", err, server.txns.Load())
			}
		})
	}
}

// A refusal proves that nothing was applied, also if the context of the call ends before the call returns.
func TestRefusalAtTheEndOfTheContext(t *testing.T) {
	t.Parallel()
	l := newLayout("p")
	for cause, c := range map[string]struct {
		stored []string
		refuse error
		guard  *driver.Guard
		want   error
	}{
		"permission": {refuse: rpctypes.ErrGRPCPermissionDenied, want: rpctypes.ErrPermissionDenied},
		"fence":      {stored: []string{l.fenceKey()}, want: storage.ErrFenced},
		"guard":      {stored: []string{l.noteKey("n")}, guard: &driver.Guard{Note: "n", Revision: "7"}, want: driver.ErrSuperseded},
	} {
		for name, keys := range writes {
			t.Run(cause+"/"+name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.guard != nil {
					ctx = driver.WithGuard(ctx, *c.guard)
				}
				server := &refusing{stored: c.stored, beforeAnswer: func() error { cancel(); return c.refuse }}
				err := newTestHandle(t, server).Apply(ctx, creations(keys...))
				if !errors.Is(err, c.want) || errors.Is(err, storage.ErrInconsistent) {
					t.Errorf("Apply returned %v, expected %v without ErrInconsistent", err, c.want)
				}
			})
		}
	}
}
