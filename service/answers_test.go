package service_test

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// A caller that may write a resource but not read it gets back what it has sent, with the id, the version and the generation: not the stored
// payload, statuses, metadata or uid of the owner.
func TestWritersDoNotRead(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	newServer := func(mayRead func(registry.Caller, *resourcepb.ID, *resourcepb.Resource) error) *service.Server {
		types, err := registry.New(registry.Type{Type: albumType, Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace, MayRead: mayRead})
		if err != nil {
			t.Fatal(err)
		}
		return service.New(b, types, nil)
	}
	all := newServer(nil)
	owner, err := all.Write(t.Context(), &resourcepb.WriteRequest{Resource: album("owner", "")})
	if err != nil {
		t.Fatal(err)
	}
	for name, mayRead := range map[string]func(registry.Caller, *resourcepb.ID, *resourcepb.Resource) error{
		"denied by id": func(registry.Caller, *resourcepb.ID, *resourcepb.Resource) error { return registry.ErrDenied },
		"denied by content": func(_ registry.Caller, _ *resourcepb.ID, res *resourcepb.Resource) error {
			if res == nil {
				return registry.ErrNeedResource
			}
			return registry.ErrDenied
		},
	} {
		secret := album(name[:6]+"-"+name[10:], "secret payload")
		secret.Metadata = map[string]string{"finalizers": "secret"}
		secret.Owner = owner.GetResource().GetId()
		stored, err := all.Write(t.Context(), &resourcepb.WriteRequest{Resource: secret})
		if err != nil {
			t.Fatal(err)
		}
		id, observed := stored.GetResource().GetId(), &resourcepb.Status{ObservedGeneration: stored.GetResource().GetGeneration()}
		if _, err := all.WriteStatus(t.Context(), &resourcepb.WriteStatusRequest{Id: id, Key: "secret", Status: observed}); err != nil {
			t.Fatal(err)
		}

		writer := newServer(mayRead)
		st, err := writer.WriteStatus(t.Context(), &resourcepb.WriteStatusRequest{Id: id, Key: "mine", Status: observed})
		if err != nil {
			t.Fatal(err)
		}
		got := st.GetResource()
		if got.GetData() != nil || got.GetMetadata() != nil || got.GetOwner() != nil || len(got.GetStatus()) != 1 || got.GetStatus()["mine"].GetUpdatedAt() == nil {
			t.Errorf("%s: a status write discloses %v", name, got)
		}
		if !proto.Equal(got.GetId(), id) || got.GetVersion() == "" || got.GetGeneration() != observed.GetObservedGeneration() {
			t.Errorf("%s: the answer to a status write lacks the id, the version or the generation: %v", name, got)
		}

		mine := album(id.GetName(), "mine")
		mine.Owner = proto.CloneOf(owner.GetResource().GetId())
		mine.Owner.Uid = ""
		written, err := writer.Write(t.Context(), &resourcepb.WriteRequest{Resource: mine})
		if err != nil {
			t.Fatal(err)
		}
		got = written.GetResource()
		if got.GetStatus() != nil || got.GetMetadata() != nil || got.GetOwner().GetUid() != "" || !proto.Equal(got.GetData(), mine.GetData()) {
			t.Errorf("%s: a write discloses %v", name, got)
		}
		now, err := b.Read(t.Context(), storage.StrongConsistency, id)
		if err != nil || got.GetVersion() != now.GetVersion() || len(now.GetStatus()) != 2 || now.GetMetadata()["finalizers"] != "secret" {
			t.Errorf("%s: the stored resource is %v: %v", name, now, err)
		}
	}
}

// A resource under an id that the service does not write, stored by another program, can be read and deleted. Where none is stored, the client
// gets the error of the id.
func TestIrregularIDs(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	server := service.New(b, registry.NewOpen(registry.Type{}), nil)
	for _, id := range []*resourcepb.ID{
		{Name: "a.b", Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "default"}},
		{Name: "system:admin", Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: "kube_system"}},
	} {
		id.Type, id.Uid = albumType, "u"
		res := album("", "x")
		res.Id = id
		if _, err := b.WriteCAS(t.Context(), res); err != nil {
			t.Fatal(err)
		}
		for _, version := range []string{"v1", storage.Wildcard} {
			asked := proto.CloneOf(id)
			asked.Uid, asked.Type.GroupVersion = "", version
			read, err := server.Read(t.Context(), &resourcepb.ReadRequest{Id: asked})
			if err != nil || read.GetResource().GetId().GetName() != id.GetName() {
				t.Errorf("read %v: %v", asked, err)
			}
		}
		if _, err := server.Delete(t.Context(), &resourcepb.DeleteRequest{Id: id}); err != nil {
			t.Errorf("delete %v: %v", id, err)
		}
		_, readErr := server.Read(t.Context(), &resourcepb.ReadRequest{Id: id})
		_, deleteErr := server.Delete(t.Context(), &resourcepb.DeleteRequest{Id: id})
		_, writeErr := server.Write(t.Context(), &resourcepb.WriteRequest{Resource: res})
		for _, err := range []error{readErr, deleteErr, writeErr} {
			if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "expected 1 to 63 lower-case letters") {
				t.Errorf("%v is not stored: %v", id, err)
			}
		}
	}
}
