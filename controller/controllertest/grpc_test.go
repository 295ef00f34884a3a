package controllertest

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// A manager whose client calls the service over a connection gives the same guarantees, with the leases in the service's store.
func TestOverGRPC(t *testing.T) {
	t.Parallel()
	for _, r := range rules {
		if r.isAboutTime {
			continue
		}
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			backend := inmem.New(nil)
			defer backend.Close()
			run(t, nil, backend, func(e *Env) {
				e.Client = dial(t, e)
				r.check(&world{Env: e, reporter: t, timeout: maxWait})
			})
		})
	}
}

// dial serves the service of an environment, and returns a client of it.
func dial(t *testing.T, e *Env) resourcegrpc.ResourceServiceClient {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer()
	e.server.Register(s)
	e.running.Go(func() { _ = s.Serve(listener) })
	context.AfterFunc(e.ctx, s.Stop)
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return resourcegrpc.NewResourceServiceClient(conn)
}
