package serve

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// A gRPC call whose handler does not return does not prevent the end of the server.
func TestDrainWithStuckHandler(t *testing.T) {
	t.Parallel()
	for name, drain := range map[string]func(*server, *etcdserver.Server){
		"resources": func(s *server, keys *etcdserver.Server) { s.drain(); keys.Close() },
		"etcd":      func(s *server, keys *etcdserver.Server) { s.drainEtcd(keys) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				backend := inmem.New(nil)
				defer backend.Close()
				keys, err := etcdserver.New(backend, nil)
				if err != nil {
					t.Fatal(err)
				}
				began, free := make(chan struct{}), make(chan struct{})
				s := &server{
					config:     &Config{Drain: time.Second, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))},
					handshakes: newHandshakes(insecure.NewCredentials()), resources: service.New(backend, registry.NewOpen(registry.Type{}), nil),
					stopHealth: func() {}, beginDrain: func() {},
					grpc: grpc.NewServer(grpc.UnknownServiceHandler(func(any, grpc.ServerStream) error {
						close(began)
						<-free // a hook or a driver that ignores its context
						return nil
					})),
				}
				conn, served := inMemory(t, s.grpc)
				defer conn.Close()
				if _, err := conn.NewStream(t.Context(), &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/stuck/Call"); err != nil {
					t.Fatal(err)
				}
				<-began
				giveUp := time.AfterFunc(time.Hour, func() { close(free) })
				drain(s, keys)
				if giveUp.Stop() {
					close(free)
				} else {
					t.Error("the server waited for a call that does not return")
				}
				if err := <-served; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// inMemory serves gRPC without a network. served receives the result of Serve.
func inMemory(t *testing.T, server *grpc.Server, options ...grpc.DialOption) (conn *grpc.ClientConn, served <-chan error) {
	t.Helper()
	listener, ended := bufconn.Listen(1<<10), make(chan error)
	go func() { ended <- server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:", append(options, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	return conn, ended
}

// A client that does not read its watch delays the end of the server by stallTimeout, however long running calls may take.
func TestDrainWithUnreadWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		backend := inmem.New(nil)
		defer backend.Close()
		keys, err := etcdserver.New(backend, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer keys.Close()
		s := &server{
			config:     &Config{Drain: time.Hour, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))},
			handshakes: newHandshakes(insecure.NewCredentials()), stopHealth: func() {}, beginDrain: func() {}, grpc: grpc.NewServer(),
		}
		keys.Register(s.grpc)
		const window = 1 << 16
		conn, served := inMemory(t, s.grpc, grpc.WithStaticStreamWindowSize(window))
		defer conn.Close()
		stream, err := pb.NewWatchClient(conn).Watch(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		create := &pb.WatchRequest_CreateRequest{CreateRequest: &pb.WatchCreateRequest{Key: []byte("key")}}
		if err := stream.Send(&pb.WatchRequest{RequestUnion: create}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			if _, err := pb.NewKVClient(conn).Put(t.Context(), &pb.PutRequest{Key: []byte("key"), Value: make([]byte, window/2)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait() // the window of the watch is full
		began := time.Now()
		s.drainEtcd(keys)
		if after := time.Since(began); after < stallTimeout || after > stallTimeout+cutOffTimeout {
			t.Errorf("the server waited %v for a client that does not read, expected %v", after, stallTimeout)
		}
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
