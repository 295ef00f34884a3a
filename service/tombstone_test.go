package service_test

import (
	"context"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// Clients cannot write tombstones, whatever the group version.
func TestTombstonesOfOtherGroupVersions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	b := inmem.New(nil)
	defer b.Close()
	c := service.New(b, registry.NewOpen(registry.Type{}), nil).Client()
	written, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: album("a", "one")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: written.GetResource().GetId()}); err != nil {
		t.Fatal(err)
	}
	stones := func() []*resourcepb.Resource {
		t.Helper()
		all, err := b.List(ctx, storage.StrongConsistency, storage.UnversionedTypeFrom(service.TombstoneType), written.GetResource().GetId().GetTenancy(), "")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	before := stones()
	if len(before) != 1 {
		t.Fatal(before)
	}
	forged := proto.CloneOf(before[0])
	forged.Id.Type.GroupVersion, forged.Data, forged.Version = "v2", nil, ""
	for _, name := range []string{forged.GetId().GetName(), "another"} {
		forged.Id.Name, forged.Id.Uid = name, ""
		if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: forged}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s is written: %v", name, err)
		}
	}
	if _, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: forged.GetId()}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a tombstone is deleted by another group version: %v", err)
	}
	owned := album("b", "one")
	owned.Owner = before[0].GetId()
	if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: owned}); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a tombstone owns a resource, which its end would leave for ever: %v", err)
	}
	if after := stones(); len(after) != 1 || !proto.Equal(before[0], after[0]) {
		t.Errorf("stored is %v, not %v", after, before)
	}
	if _, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: before[0].GetId()}); err != nil || len(stones()) != 0 {
		t.Errorf("the tombstone is not deleted, or left another one: %v, %v", err, stones())
	}
}
