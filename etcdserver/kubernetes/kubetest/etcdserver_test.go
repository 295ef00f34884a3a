//go:build integration

package kubetest

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
	_ "github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
	_ "github.com/ashlar-dev/storage/sqlite"
)

// etcdServer is a server of etcd's API on a store.
type etcdServer struct {
	tally   *tally
	url     string // of the store
	address string
	stop    func()
}

// startEtcdServer serves a store on a free port until the test ends.
func startEtcdServer(t *testing.T, y *tally, url string) *etcdServer {
	t.Helper()
	f := &etcdServer{tally: y, url: url, address: "127.0.0.1:0"}
	f.start(t)
	t.Cleanup(func() { f.stop() })
	return f
}

func (f *etcdServer) start(t *testing.T) {
	t.Helper()
	backend, err := storage.Open(t.Context(), f.url)
	if err != nil {
		t.Fatal(err)
	}
	server, err := etcdserver.New(backend, nil)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", f.address)
	if err != nil {
		t.Fatal(err)
	}
	f.address = listener.Addr().String()
	g := grpc.NewServer(grpc.MaxRecvMsgSize(8<<20), grpc.UnaryInterceptor(f.count))
	server.Register(g)
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(listener) }()
	f.stop = func() {
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		server.Close()
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	}
}

// count counts calls.
func (f *etcdServer) count(ctx context.Context, request any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	answer, err := next(ctx, request)
	if _, is := request.(*pb.CompactionRequest); is && err == nil {
		f.tally.add("compactions", 1)
	}
	f.tally.add("calls of the storage", 1)
	return answer, err
}

// endpoint returns the value of kube-apiserver's --etcd-servers.
func (f *etcdServer) endpoint() string { return "http://" + f.address }

// restart ends the server and opens the store again, at the same address.
func (f *etcdServer) restart(t *testing.T) {
	t.Helper()
	f.tally.add("restarts of the server", 1)
	f.stop()
	f.start(t)
}

// databases are the databases for the tests.
var databases = map[string]func(t *testing.T) string{
	"sqlite":   func(t *testing.T) string { return "sqlite://" + filepath.Join(t.TempDir(), "kube.db") },
	"postgres": func(t *testing.T) string { return env.Postgres(t).StoreURL(t) },
}

// restartable are databases that a test may stop for a while, with functions that restart them.
var restartable = map[string]func(t *testing.T) (url string, restart func()){
	"sqlite": func(t *testing.T) (string, func()) { return databases["sqlite"](t), nil }, // there is no server besides the etcdServer
	"postgres": func(t *testing.T) (string, func()) {
		server := env.StartPostgres(t)
		return server.StoreURL(t), func() { server.Restart(t) }
	},
}
