package service_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// A stream that is rejected when it opens fails for its caller, and the server continues.
func TestRejectedStreams(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	server := newServer(t, registry.Type{
		Type: albumType, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace,
		MayList: func(_ registry.Caller, _ *resourcepb.Type, tenancy *resourcepb.Tenancy) error {
			if tenancy.GetNamespace() == "closed" {
				return fmt.Errorf("%w: the namespace is closed", registry.ErrDenied)
			}
			return nil
		},
	})
	for name, c := range map[string]struct {
		req  *resourcepb.WatchListRequest
		code codes.Code
	}{
		"not allowed":        {&resourcepb.WatchListRequest{Tenancy: &resourcepb.Tenancy{Namespace: "closed"}}, codes.PermissionDenied},
		"cursor of no store": {&resourcepb.WatchListRequest{Cursor: "x"}, codes.InvalidArgument},
		"bookmarks too soon": {&resourcepb.WatchListRequest{BookmarkInterval: durationpb.New(time.Millisecond)}, codes.InvalidArgument},
	} {
		c.req.Type = albumType
		_, err := server.Client().WatchList(ctx, c.req)
		if status.Code(err) != c.code {
			t.Errorf("%s: the stream is answered with %v, expected %v", name, err, c.code)
		}
	}
}
