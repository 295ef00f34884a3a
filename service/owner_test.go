package service_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// The service does not fill in the uid of an owner that the caller may not read, and does not disclose whether it exists.
func TestUnreadableOwners(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	types := albums(t, registry.Type{
		MayRead: func(c registry.Caller, id *resourcepb.ID, res *resourcepb.Resource) error {
			if strings.HasPrefix(id.GetName(), "needed") && res == nil {
				return registry.ErrNeedResource
			}
			if strings.HasSuffix(id.GetName(), "secret") {
				return registry.ErrDenied
			}
			return c.OperatorRead()
		},
		MayWrite: func(registry.Caller, *resourcepb.Resource) error { return nil },
	})
	c := service.New(b, types, &service.Options{Authenticate: guests("elsewhere")}).Client()
	for _, owner := range []struct {
		name, namespace string
		code            codes.Code
	}{
		{"open", "here", codes.OK},
		{"needed", "here", codes.OK},
		{"secret", "here", codes.PermissionDenied},
		{"needed-secret", "here", codes.PermissionDenied},
		{"open", "elsewhere", codes.PermissionDenied},
	} {
		res := album("child-of-"+owner.name+"-"+owner.namespace, "1")
		res.Owner = album(owner.name, "1").GetId()
		res.Owner.Tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: owner.namespace}
		absent := owner.code
		if absent == codes.OK || strings.HasPrefix(owner.name, "needed") {
			absent = codes.InvalidArgument // as Read, which says NotFound
		}
		if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: res}); status.Code(err) != absent {
			t.Errorf("%v, which is absent: %v, expected %v", owner, err, absent)
		}
		store(ctx, t, b, album(owner.name, "1"), owner.namespace, "v1")
		if out, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: res}); status.Code(err) != owner.code {
			t.Errorf("%v: %v and %v, expected %v", owner, out, err, owner.code)
		}
	}
	unknown := album("child-of-unknown", "1")
	unknown.Owner = &resourcepb.ID{Type: &resourcepb.Type{Group: "demo", GroupVersion: "v1", Kind: "Unknown"}, Name: "a", Tenancy: &resourcepb.Tenancy{}}
	if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: unknown}); status.Code(err) != codes.InvalidArgument ||
		status.Convert(err).Message() != "resource.owner does not exist" {
		t.Errorf("an owner of a type that is not registered: %v", err)
	}
}
