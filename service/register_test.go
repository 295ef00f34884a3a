package service_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// The two wire names of the service.
const (
	ourName    = "ashlar.resource.v1.ResourceService"
	consulName = "hashicorp.consul.resource.ResourceService"
)

// newServer returns a server of some types over a new store. The default type is albums.
func newServer(t *testing.T, types ...registry.Type) *service.Server {
	t.Helper()
	if len(types) == 0 {
		types = []registry.Type{{Type: albumType, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace}}
	}
	r, err := registry.New(types...)
	if err != nil {
		t.Fatal(err)
	}
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	return service.New(b, r, nil)
}

// dial serves the registered services on a loopback port until the test ends, and returns a connection.
func dial(t *testing.T, register func(*grpc.Server), opts ...grpc.ServerOption) *grpc.ClientConn {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(opts...)
	register(s)
	served := make(chan error, 1)
	go func() { served <- s.Serve(listener) }()
	t.Cleanup(func() {
		s.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	cc, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

// A resource written under one name is read under the other, and interceptors get the called name.
func TestBothNames(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var (
		mu     sync.Mutex
		called []string
	)
	note := func(ctx context.Context, told string) {
		method, _ := grpc.Method(ctx)
		mu.Lock()
		defer mu.Unlock()
		called = append(called, told)
		if method != told {
			t.Errorf("the interceptor gets %s, and grpc.Method returns %s", told, method)
		}
	}
	cc := dial(t, func(s *grpc.Server) { newServer(t).Register(s) },
		grpc.UnaryInterceptor(func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			note(ctx, info.FullMethod)
			if _, ok := info.Server.(*service.Server); !ok {
				t.Errorf("the interceptor gets the server %T", info.Server)
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			note(stream.Context(), info.FullMethod)
			return next(srv, stream)
		}))

	var want []string
	for writer, reader := range map[string]string{ourName: consulName, consulName: ourName} {
		res := album("by-"+writer[:3], "one")
		written, read := &resourcepb.WriteResponse{}, &resourcepb.ReadResponse{}
		if err := cc.Invoke(ctx, "/"+writer+"/Write", &resourcepb.WriteRequest{Resource: res}, written); err != nil {
			t.Fatal(err)
		}
		if err := cc.Invoke(ctx, "/"+reader+"/Read", &resourcepb.ReadRequest{Id: res.GetId()}, read); err != nil {
			t.Fatal(err)
		}
		if got, want := read.GetResource().GetVersion(), written.GetResource().GetVersion(); got != want {
			t.Errorf("version %q was written as %s, and %q read as %s", want, writer, got, reader)
		}
		stream, err := cc.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+reader+"/WatchList")
		if err != nil {
			t.Fatal(err)
		}
		ev := &resourcepb.WatchEvent{}
		if err := stream.SendMsg(&resourcepb.WatchListRequest{Type: albumType, NamePrefix: res.GetId().GetName()}); err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(ev); err != nil || ev.GetUpsert() == nil {
			t.Fatalf("the first event under %s: %v, %v", reader, ev, err)
		}
		want = append(want, "/"+writer+"/Write", "/"+reader+"/Read", "/"+reader+"/WatchList")
	}
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(called)
	slices.Sort(want)
	if !slices.Equal(called, want) {
		t.Errorf("interceptors saw %q, expected %q", called, want)
	}
}

// Without interceptors the other name uses the same handlers.
func TestCompatibleNameWithoutInterceptors(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cc := dial(t, func(s *grpc.Server) { newServer(t).Register(s) })
	err := cc.Invoke(ctx, "/"+consulName+"/Read", &resourcepb.ReadRequest{Id: album("none", "").GetId()}, &resourcepb.ReadResponse{})
	if status.Code(err) != codes.NotFound {
		t.Errorf("a read of an absent resource returns %v, expected NotFound", err)
	}
}

func TestHealth(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var set interface {
		Shutdown()
		Resume()
	}
	cc := dial(t, func(s *grpc.Server) { set = service.RegisterHealth(s) })
	client := healthpb.NewHealthClient(cc)
	expect := func(when string, want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		for _, name := range []string{"", ourName, consulName} {
			got, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: name})
			if err != nil || got.GetStatus() != want {
				t.Errorf("%s, the status of %q is %v (%v), expected %v", when, name, got.GetStatus(), err, want)
			}
		}
	}
	expect("from the beginning", healthpb.HealthCheckResponse_SERVING)
	set.Shutdown()
	expect("after Shutdown", healthpb.HealthCheckResponse_NOT_SERVING)
	set.Resume()
	expect("after Resume", healthpb.HealthCheckResponse_SERVING)
	if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{Service: "another"}); status.Code(err) != codes.NotFound {
		t.Errorf("the status of an unknown service: %v, expected NotFound", err)
	}
}
