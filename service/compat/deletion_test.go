package compat

import (
	"testing"

	"github.com/hashicorp/consul/proto-public/pbresource"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// A deletion leaves a tombstone whose payload this client's message decodes.
func TestDeleteLeavesATombstone(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		res := s.write(ctx, t, newService("web", "10.0.0.1"))
		if _, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: res.GetId(), Version: res.GetVersion()}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Read(ctx, &pbresource.ReadRequest{Id: res.GetId()}); status.Code(err) != codes.NotFound {
			t.Errorf("after the deletion a read answers %v, expected NotFound", err)
		}
		stones := s.list(ctx, t, &pbresource.ListRequest{Type: tombstoneType, Tenancy: byDefault})
		if len(stones) != 1 {
			t.Fatalf("there are %d tombstones, expected one: %v", len(stones), stones)
		}
		stone := &pbresource.Tombstone{}
		if err := stones[0].GetData().UnmarshalTo(stone); err != nil {
			t.Fatalf("the tombstone's payload does not decode: %v", err)
		}
		equal(t, "the tombstone's owner", stone.GetOwner(), res.GetId())
		equal(t, "the tombstone by its id", s.read(ctx, t, stones[0].GetId()), stones[0])
		if _, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: stones[0].GetId()}); err != nil {
			t.Errorf("a tombstone cannot be deleted: %v", err)
		}
		if left := s.list(ctx, t, &pbresource.ListRequest{Type: tombstoneType, Tenancy: byDefault}); len(left) > 0 {
			t.Errorf("the deletion of a tombstone leaves %v", left)
		}
	})
}

// A deletion by name needs no uid and no version. It succeeds if the resource is absent or has another uid.
func TestDeleteAbsentResource(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		res := s.write(ctx, t, newService("web", "10.0.0.1"))
		another := copied(res.GetId(), func(id *pbresource.ID) { id.Uid = otherUid })
		if _, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: another}); err != nil {
			t.Errorf("deletion of another uid: %v", err)
		}
		equal(t, "the stored resource after the deletion of another uid", s.read(ctx, t, res.GetId()), res)
		for range 2 {
			if _, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: newService("web", "").GetId()}); err != nil {
				t.Errorf("deletion by name: %v", err)
			}
		}
	})
}

// A resource with finalizers is marked, accepts only statuses and the removal of finalizers, and is deleted with the last one.
func TestDeferredDeletion(t *testing.T) {
	onEachStore(t, func(t *testing.T, s *server) {
		ctx := limited(t)
		res := newService("web", "10.0.0.1")
		res.Metadata = map[string]string{"finalizers": "a b"}
		created := s.write(ctx, t, res)
		for range 2 { // the second deletion finds the mark
			if _, err := s.Delete(ctx, &pbresource.DeleteRequest{Id: res.GetId()}); err != nil {
				t.Fatal(err)
			}
		}
		marked := s.read(ctx, t, created.GetId())
		if marked.GetMetadata()["deletionTimestamp"] == "" {
			t.Fatalf("the deletion of a resource with finalizers did not mark it: %v", marked)
		}
		refuse := func(what, text string, change func(*pbresource.Resource)) {
			t.Helper()
			_, err := s.Write(ctx, &pbresource.WriteRequest{Resource: copied(marked, change)})
			if status.Code(err) != codes.InvalidArgument || text != "" && status.Convert(err).Message() != text {
				t.Errorf("%s is answered with %v, expected InvalidArgument %q", what, err, text)
			}
		}
		refuse("a write that changes nothing", "expected at least one finalizer to be removed", func(*pbresource.Resource) {})
		refuse("another finalizer", "expected at least one finalizer to be removed",
			func(res *pbresource.Resource) { res.Metadata["finalizers"] = "a c" })
		refuse("a change of the payload", "", func(res *pbresource.Resource) {
			res.Metadata["finalizers"], res.Data = "a", newService("", "10.0.0.2").GetData()
		})
		refuse("the removal of the mark", "", func(res *pbresource.Resource) { delete(res.Metadata, "deletionTimestamp") })
		refuse("a change of the mark", "", func(res *pbresource.Resource) { res.Metadata["deletionTimestamp"] = "2024-01-01T00:00:00Z" })
		equal(t, "the stored resource after the rejections", s.read(ctx, t, created.GetId()), marked)

		reported, err := s.WriteStatus(ctx, &pbresource.WriteStatusRequest{
			Id: marked.GetId(), Key: "k", Status: &pbresource.Status{ObservedGeneration: marked.GetGeneration()},
		})
		if err != nil {
			t.Fatalf("a status of a marked resource: %v", err)
		}
		fewer := s.write(ctx, t, copied(reported.GetResource(), func(res *pbresource.Resource) { res.Metadata["finalizers"] = "b" }))
		s.write(ctx, t, copied(fewer, func(res *pbresource.Resource) { delete(res.Metadata, "finalizers") }))
		if _, err := s.Read(ctx, &pbresource.ReadRequest{Id: res.GetId()}); status.Code(err) != codes.NotFound {
			t.Errorf("after its last finalizer a read answers %v, expected NotFound", err)
		}
		if stones := s.list(ctx, t, &pbresource.ListRequest{Type: tombstoneType, Tenancy: byDefault}); len(stones) != 1 {
			t.Errorf("there are %d tombstones, expected one: %v", len(stones), stones)
		}
	})
}
