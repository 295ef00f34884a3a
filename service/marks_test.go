package service_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// Writes that mark a resource for deletion or remove its finalizers do not change its group version either.
func TestMarkedResourcesKeepTheirGroupVersion(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	c := service.New(b, registry.NewOpen(registry.Type{}), nil).Client()
	res := album("a", "1")
	res.Metadata = map[string]string{"finalizers": "x y z"}
	out, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: res})
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []string{"x y z", "x y", ""} {
		res = proto.CloneOf(out.GetResource())
		res.Version = ""
		res.Metadata = map[string]string{"finalizers": step, "deletionTimestamp": "2020-01-01T00:00:00Z"}
		res.Id.Type.GroupVersion = "v2"
		if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: res}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("finalizers %q: %v", step, err)
		}
		res.Id.Type.GroupVersion = "v1"
		if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: res}); err != nil {
			t.Fatalf("finalizers %q: %v", step, err)
		}
	}
}
