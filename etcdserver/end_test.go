package etcdserver_test

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A closed server ends its clients' streams, even of clients that neither read nor send, so that they reconnect elsewhere.
func TestStreamsEndWithTheServer(t *testing.T) {
	t.Parallel()
	for name, url := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			address, s := start(t, fixture.Open(t, url(t)), nil)
			c := client(t, address)
			watches := stream(t, c)
			create(t, watches, &pb.WatchCreateRequest{Key: []byte("a")})
			receive(t, watches)
			leases, err := pb.NewLeaseClient(c.ActiveConnection()).LeaseKeepAlive(ctx(t))
			if err != nil {
				t.Fatal(err)
			}
			id := int64(grant(t, c, 60))
			if err := leases.Send(&pb.LeaseKeepAliveRequest{ID: id}); err != nil {
				t.Fatal(err)
			}
			if r, err := leases.Recv(); err != nil || r.TTL != 60 {
				t.Fatal(r, err)
			}
			s.Close()
			if _, err := watches.Recv(); status.Code(err) != codes.Unavailable {
				t.Errorf("a watch ends with %v", err)
			}
			if _, err := leases.Recv(); status.Code(err) != codes.Unavailable {
				t.Errorf("what keeps leases alive ends with %v", err)
			}
		})
	}
}
