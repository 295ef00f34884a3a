package etcd

import (
	"context"
	"errors"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// unresponsive is a cluster that receives transactions and never answers.
type unresponsive struct {
	pb.KVClient
	received chan struct{}
}

func (s *unresponsive) Txn(ctx context.Context, _ *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	s.received <- struct{}{}
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s *unresponsive) Put(ctx context.Context, _ *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// newTestHandle returns a handle of a store in a simulated cluster.
func newTestHandle(t *testing.T, server pb.KVClient) *handle {
	client := clientv3.NewCtxClient(t.Context())
	c := newConn(client, Options{Prefix: "p", MaxTxnOps: defaultTxnOps, MaxRequestBytes: defaultRequest}, false)
	c.kv, c.txns = clientv3.NewKVFromKVClient(server, client), server
	c.recordRevision(1)
	return newHandle(c)
}

// creations returns mutations that create resources with these names.
func creations(names ...string) (mutations []driver.Mutation) {
	for _, name := range names {
		k := key.Key{Group: "g", Kind: "k", Name: name}
		mutations = append(mutations, driver.Mutation{Verb: driver.Write, Key: k, Uid: "u", Resource: &resourcepb.Resource{Id: k.ID("u", "v")}})
	}
	return mutations
}

// A write that is in flight when the backend is closed fails with ErrInconsistent besides ErrClosed, because it may be applied.
func TestCloseDuringWrites(t *testing.T) {
	t.Parallel()
	for name, writes := range map[string][][]string{"alone": {{"a"}}, "in a batch": {{"a"}, {"b"}}, "transaction": {{"a", "b"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := &unresponsive{received: make(chan struct{}, 100)}
			b := newTestHandle(t, server)
			var calls sync.WaitGroup
			for _, names := range writes {
				calls.Go(func() {
					if err := b.Apply(t.Context(), creations(names...)); !errors.Is(err, storage.ErrClosed) || !errors.Is(err, storage.ErrInconsistent) {
						t.Errorf("%v, expected ErrClosed and ErrInconsistent", err)
					}
				})
				<-server.received
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			calls.Wait()
		})
	}
}
