package service_test

import (
	"context"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// A watch that fails to open returns an error and has no other effect.
func TestWatchOpenErrors(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	nobody := registry.NewOpen(registry.Type{
		MayList: func(registry.Caller, *resourcepb.Type, *resourcepb.Tenancy) error { return registry.ErrDenied },
	})
	stranger := func(context.Context, string, *resourcepb.Tenancy) (registry.Caller, error) {
		return nil, service.ErrUnauthenticated
	}
	for name, tc := range map[string]struct {
		server *service.Server
		cursor string
		want   codes.Code
	}{
		"denied":          {service.New(b, nobody, nil), "", codes.PermissionDenied},
		"unauthenticated": {service.New(b, nobody, &service.Options{Authenticate: stranger}), "", codes.Unauthenticated},
		"bad cursor":      {service.New(b, registry.NewOpen(registry.Type{}), nil), "garbage", codes.InvalidArgument},
	} {
		stream, err := tc.server.Client().WatchList(t.Context(), &resourcepb.WatchListRequest{Type: albumType, Cursor: tc.cursor})
		if err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != tc.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
