package serve

import (
	"context"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

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
				listener := bufconn.Listen(1 << 10)
				served := make(chan error)
				go func() { served <- s.grpc.Serve(listener) }()
				conn, err := grpc.NewClient("passthrough:", grpc.WithTransportCredentials(insecure.NewCredentials()),
					grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
				if err != nil {
					t.Fatal(err)
				}
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
