package etcdserver_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/inmem"
)

// silent is a store whose followers never receive a change.
type silent struct {
	storage.Backend
	history.Historian
	storage.Transactor
}

func (s silent) Follow(ctx context.Context, span history.Range, after int64) (history.Follower, error) {
	f, err := s.Historian.Follow(ctx, span, after)
	return &silentFollower{f}, err
}

type silentFollower struct{ history.Follower }

func (silentFollower) Next(ctx context.Context) ([]history.Change, int64, error) {
	<-ctx.Done()
	return nil, 0, ctx.Err()
}

// If a transaction succeeded but its revision cannot be found because the store is unreachable, the call ends with an unknown outcome, even
// without a deadline.
func TestTransactionWhoseRevisionIsNotFoundEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := inmem.New(nil)
		defer b.Close()
		h, ok := storage.As[history.Historian](b)
		if !ok {
			t.Fatal("memory has no history")
		}
		s, err := etcdserver.New(silent{b, h, b}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if _, err := s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{putOp("a"), putOp("b")}}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Txn(t.Context(), &pb.TxnRequest{Success: []*pb.RequestOp{deleteOp("a", "c")}})
		if !errors.Is(rpctypes.Error(err), rpctypes.ErrTimeout) {
			t.Errorf("got %v, %v, expected ErrTimeout", r, err)
		}
	})
}
