package servicetest

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
)

// Transport returns a client of a server. Everything it starts ends with the test.
type Transport func(t testing.TB, s *service.Server) Client

// Client is a client of all services of a server.
type Client interface {
	resourcegrpc.ResourceServiceClient
	resourcegrpc.HistoryServiceClient
}

// clients has the clients of the services of one server.
type clients struct {
	resourcegrpc.ResourceServiceClient
	resourcegrpc.HistoryServiceClient
}

// The names of the registered service.
const (
	Name           = "ashlar.resource.v1.ResourceService"
	CompatibleName = "hashicorp.consul.resource.ResourceService"
)

// Local is the transport within the process: the server's own clients.
func Local(_ testing.TB, s *service.Server) Client { return clients{s.Client(), s.History()} }

// OverGRPC returns the transport by gRPC over loopback, with the given name of the resource service.
func OverGRPC(name string) Transport {
	return func(t testing.TB, s *service.Server) Client {
		t.Helper()
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		server := grpc.NewServer()
		s.Register(server)
		ended := make(chan error, 1)
		go func() { ended <- server.Serve(l) }()
		conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := conn.Close(); err != nil {
				t.Errorf("close the connection: %v", err)
			}
			server.Stop()
			if err := <-ended; err != nil && !errors.Is(err, grpc.ErrServerStopped) { // which reports that it has not served before Stop
				t.Errorf("serve gRPC: %v", err)
			}
		})
		return clients{resourcegrpc.NewResourceServiceClient(calledBy{name: name, conn: conn}), resourcegrpc.NewHistoryServiceClient(conn)}
	}
}

// calledBy calls the methods of the service by another name of it.
type calledBy struct {
	name string
	conn *grpc.ClientConn
}

func (c calledBy) path(method string) string {
	return "/" + c.name + method[strings.LastIndexByte(method, '/'):]
}

// Invoke implements grpc.ClientConnInterface.
func (c calledBy) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	return c.conn.Invoke(ctx, c.path(method), args, reply, opts...)
}

// NewStream implements grpc.ClientConnInterface.
func (c calledBy) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	return c.conn.NewStream(ctx, desc, c.path(method), opts...)
}
