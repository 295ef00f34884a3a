package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	etcdclient "go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/etcdserver"
)

// connection is a client, with its streams to the server.
type connection struct {
	*etcdclient.Client
	streams *streams
	name    string
}

// connections counts the connections of the process.
var connections atomic.Int64

// newConnection returns a client that calls s without a network.
func newConnection(s *etcdserver.Server) *connection {
	// etcdclient.New would dial. A client of this kind has no endpoints, and must not get any.
	client := clientv3.NewCtxClient(context.Background())
	c := &connection{
		Client:  &etcdclient.Client{Client: client},
		streams: &streams{clientCtx: client.Ctx()},
		name:    fmt.Sprintf("ashlar-in-process-%d", connections.Add(1)),
	}
	client.KV = clientv3.NewKVFromKVClient(&kvClient{server: s, streams: c.streams}, client)
	client.Watcher = clientv3.NewWatchFromWatchClient(&watchClient{server: s, streams: c.streams}, client)
	client.Lease = clientv3.NewLeaseFromLeaseClient(&leaseClient{server: s, streams: c.streams}, client, 0)
	client.Maintenance = clientv3.NewMaintenanceFromMaintenanceClient(&maintenanceClient{server: s}, client)
	c.Kubernetes = c.Client
	return c
}

// close ends the client's watches and leases, and waits until their goroutines have ended.
func (c *connection) close() {
	_ = c.Close() // it always returns the cancellation of its context
	c.streams.close()
}

// Endpoints returns a unique name within the process, because Kubernetes caches the features of a server by its endpoints.
func (c *connection) Endpoints() []string { return []string{c.name} }

// kvClient implements the client of the KV service.
type kvClient struct {
	server  pb.KVServer
	streams *streams
}

func (c *kvClient) Range(ctx context.Context, r *pb.RangeRequest, _ ...grpc.CallOption) (*pb.RangeResponse, error) {
	return c.server.Range(ctx, r)
}

func (c *kvClient) Put(ctx context.Context, r *pb.PutRequest, _ ...grpc.CallOption) (*pb.PutResponse, error) {
	return c.server.Put(ctx, r)
}

func (c *kvClient) DeleteRange(
	ctx context.Context, r *pb.DeleteRangeRequest, _ ...grpc.CallOption,
) (*pb.DeleteRangeResponse, error) {
	return c.server.DeleteRange(ctx, r)
}

func (c *kvClient) Txn(ctx context.Context, r *pb.TxnRequest, _ ...grpc.CallOption) (*pb.TxnResponse, error) {
	return c.server.Txn(ctx, r)
}

func (c *kvClient) Compact(
	ctx context.Context, r *pb.CompactionRequest, _ ...grpc.CallOption,
) (*pb.CompactionResponse, error) {
	return c.server.Compact(ctx, r)
}

func (c *kvClient) RangeStream(
	ctx context.Context, r *pb.RangeRequest, _ ...grpc.CallOption,
) (grpc.ServerStreamingClient[pb.RangeStreamResponse], error) {
	return startStream(ctx, c.streams, func(end *serverEnd[pb.RangeRequest, pb.RangeStreamResponse]) error {
		return c.server.RangeStream(r, end)
	})
}

// watchClient implements the client of the Watch service.
type watchClient struct {
	server  pb.WatchServer
	streams *streams
}

func (c *watchClient) Watch(
	ctx context.Context, _ ...grpc.CallOption,
) (grpc.BidiStreamingClient[pb.WatchRequest, pb.WatchResponse], error) {
	return startStream(ctx, c.streams, func(end *serverEnd[pb.WatchRequest, pb.WatchResponse]) error {
		err := c.server.Watch(end)
		if errors.Is(err, rpctypes.ErrGRPCStopped) {
			return errClosed // on the original error, etcd's client would silently search for another server forever
		}
		return err
	})
}

// leaseClient implements the client of the Lease service.
type leaseClient struct {
	server  pb.LeaseServer
	streams *streams
}

func (c *leaseClient) LeaseGrant(
	ctx context.Context, r *pb.LeaseGrantRequest, _ ...grpc.CallOption,
) (*pb.LeaseGrantResponse, error) {
	return c.server.LeaseGrant(ctx, r)
}

func (c *leaseClient) LeaseRevoke(
	ctx context.Context, r *pb.LeaseRevokeRequest, _ ...grpc.CallOption,
) (*pb.LeaseRevokeResponse, error) {
	return c.server.LeaseRevoke(ctx, r)
}

func (c *leaseClient) LeaseKeepAlive(
	ctx context.Context, _ ...grpc.CallOption,
) (grpc.BidiStreamingClient[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse], error) {
	return startStream(ctx, c.streams, func(end *serverEnd[pb.LeaseKeepAliveRequest, pb.LeaseKeepAliveResponse]) error {
		return c.server.LeaseKeepAlive(end)
	})
}

func (c *leaseClient) LeaseTimeToLive(
	ctx context.Context, r *pb.LeaseTimeToLiveRequest, _ ...grpc.CallOption,
) (*pb.LeaseTimeToLiveResponse, error) {
	return c.server.LeaseTimeToLive(ctx, r)
}

func (c *leaseClient) LeaseLeases(
	ctx context.Context, r *pb.LeaseLeasesRequest, _ ...grpc.CallOption,
) (*pb.LeaseLeasesResponse, error) {
	return c.server.LeaseLeases(ctx, r)
}

// maintenanceClient implements the methods of the Maintenance service that Kubernetes uses. The other methods of the embedded interface are
// never called.
type maintenanceClient struct {
	pb.MaintenanceClient
	server pb.MaintenanceServer
}

func (c *maintenanceClient) Status(
	ctx context.Context, r *pb.StatusRequest, _ ...grpc.CallOption,
) (*pb.StatusResponse, error) {
	return c.server.Status(ctx, r)
}
