package compat

import (
	"context"
	"testing"
	"time"

	"github.com/hashicorp/consul/proto-public/pbresource"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// Calls whose context is done, and calls after the store was closed, fail with the right code.
func TestErrorsAfterDeadlineAndClose(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		s.write(ctx, t, newService("web", "10.0.0.1"))
		expired, cancel := context.WithDeadline(ctx, time.Now())
		defer cancel()
		if _, err := s.Read(expired, &pbresource.ReadRequest{Id: newService("web", "").GetId()}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a read without time is answered with %v, expected DeadlineExceeded", err)
		}
		stream, err := s.WatchList(ctx, &pbresource.WatchListRequest{Type: serviceType})
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if _, err := stream.Recv(); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.backend.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("a watch of a store that was closed ends with %v, expected Unavailable", err)
		}
		for method, call := range map[string]func() error{
			"Read": func() error {
				_, err := s.Read(ctx, &pbresource.ReadRequest{Id: newService("web", "").GetId()})
				return err
			},
			"Write": func() error {
				_, err := s.Write(ctx, &pbresource.WriteRequest{Resource: newService("web", "")})
				return err
			},
			"List": func() error {
				_, err := s.List(ctx, &pbresource.ListRequest{Type: serviceType, Tenancy: byDefault})
				return err
			},
			"Delete": func() error {
				_, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: newService("web", "").GetId()})
				return err
			},
		} {
			if err := call(); status.Code(err) != codes.Unavailable {
				t.Errorf("%s of a store that was closed is answered with %v, expected Unavailable", method, err)
			}
		}
	})
}

// The health service knows the name that this client calls.
func TestHealth(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		name := pbresource.ResourceService_ServiceDesc.ServiceName
		got, err := grpc_health_v1.NewHealthClient(s.cc).Check(limited(t), &grpc_health_v1.HealthCheckRequest{Service: name})
		if err != nil || got.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
			t.Errorf("the health of %s is %v (%v), expected SERVING", name, got, err)
		}
	})
}
