package kubernetes

import (
	"net"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	etcdclient "go.etcd.io/etcd/client/v3/kubernetes"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
)

// dial returns a client that calls s by gRPC, over a socket.
func dial(t testing.TB, s *etcdserver.Server) *connection {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	s.Register(g)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(listener) }()
	t.Cleanup(func() {
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	client, err := etcdclient.New(clientv3.Config{Endpoints: []string{listener.Addr().String()}})
	if err != nil {
		t.Fatal(err)
	}
	return &connection{Client: client, streams: &streams{clientCtx: client.Ctx()}, name: listener.Addr().String()}
}

var wireSuite = suite[*harness]{
	tests: storageTests,
	open: func(t *testing.T, _ upstreamTest[*harness], empty storage.Backend) *harness {
		return newHarness(t, empty, "", func(s *etcdserver.Server) *connection { return dial(t, s) })
	},
}

// TestWire runs Kubernetes' tests with etcd's own client over a socket, like a kube-apiserver.
func TestWire(t *testing.T) {
	t.Parallel()
	wireSuite.runTogether(t, engines[:1])
}

// TestWireAlone runs the tests that cannot run in parallel.
func TestWireAlone(t *testing.T) { wireSuite.runAlone(t, engines[:1]) }
