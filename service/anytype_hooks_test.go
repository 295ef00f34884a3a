package service_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// serviceWithHooks returns a service of types with the given hooks, by name, over a store that a service of all types fills.
func serviceWithHooks(t *testing.T, hooks map[string]registry.Type) (served, all resourcegrpc.ResourceServiceClient) {
	t.Helper()
	var made []registry.Type
	for name, particular := range hooks {
		particular.Type, particular.Proto, particular.Scope = typeOf(name), &wrapperspb.StringValue{}, registry.ScopeNamespace
		made = append(made, particular)
	}
	types, err := registry.New(made...)
	if err != nil {
		t.Fatal(err)
	}
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	return service.New(b, types, nil).Client(), service.New(b, registry.NewOpen(registry.Type{}), nil).Client()
}

// denying returns hooks that deny everything with an error.
func denying(err error) registry.Type {
	return registry.Type{
		MayRead: func(registry.Caller, *resourcepb.ID, *resourcepb.Resource) error { return err },
		MayList: func(registry.Caller, *resourcepb.Type, *resourcepb.Tenancy) error { return err },
	}
}

// A hook may also deny with a status: then a list of several types omits its type, whatever the order.
func TestOneTypeDeniedByStatus(t *testing.T) {
	t.Parallel()
	denied := denying(status.Error(codes.PermissionDenied, "not for you"))
	served, all := serviceWithHooks(t, map[string]registry.Type{"demo.v1.Album": denied, "demo.v2.Album": {}, "demo.v1.Zebra": denied})
	for _, name := range []string{"demo.v1.Album", "demo.v2.Album", "demo.v1.Zebra"} {
		write(t, all, name, nil)
	}
	answer, err := served.List(t.Context(), &resourcepb.ListRequest{Type: typeOf("demo.*.*"), Tenancy: &resourcepb.Tenancy{Partition: "*", Namespace: "*"}})
	if got, want := namesOf(answer.GetResources()), []string{"demo.v2.Album/of-v2"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, not %v", got, err, want)
	}
}

// A caller that may read one group version of a type may read it by the version "*", whatever the hooks of the others return.
func TestReadAnyReadableVersion(t *testing.T) {
	t.Parallel()
	served, all := serviceWithHooks(t, map[string]registry.Type{"demo.v1.Album": denying(registry.ErrDenied), "demo.v2.Album": {}})
	write(t, all, "demo.v1.Album", nil)
	write(t, all, "demo.v2.Album", nil)
	for name, want := range map[string]codes.Code{"of-v1": codes.PermissionDenied, "of-v2": codes.OK, "nobody": codes.NotFound} {
		_, err := served.Read(t.Context(), &resourcepb.ReadRequest{Id: &resourcepb.ID{Type: typeOf("demo.*.Album"), Name: name}})
		if status.Code(err) != want {
			t.Errorf("%s: %v, not %v", name, err, want)
		}
	}
}

// The stored group version is disclosed only to callers that may read the resource, even if that version is not registered.
func TestReadAnyHidesVersion(t *testing.T) {
	t.Parallel()
	served, all := serviceWithHooks(t, map[string]registry.Type{"demo.v1.Memo": {
		MayRead: func(_ registry.Caller, _ *resourcepb.ID, res *resourcepb.Resource) error {
			if res == nil {
				return registry.ErrNeedResource
			}
			return registry.ErrDenied
		},
	}})
	write(t, all, "demo.v3.Memo", nil)
	_, err := served.Read(t.Context(), &resourcepb.ReadRequest{Id: &resourcepb.ID{Type: typeOf("demo.*.Memo"), Name: "of-v3"}})
	if status.Code(err) != codes.PermissionDenied || strings.Contains(err.Error(), "v3") {
		t.Error(err)
	}
}

// Type names with wildcards select tombstones as their own name does, in lists and reads.
func TestTombstonesAmongTypes(t *testing.T) {
	t.Parallel()
	served, all := serviceWithHooks(t, map[string]registry.Type{"demo.v1.Album": {}})
	write(t, all, "demo.v1.Album", nil)
	id := &resourcepb.ID{Type: typeOf("demo.v1.Album"), Name: "of-v1"}
	if _, err := served.Delete(t.Context(), &resourcepb.DeleteRequest{Id: id}); err != nil {
		t.Fatal(err)
	}
	everywhere := &resourcepb.Tenancy{Partition: "*", Namespace: "*"}
	for _, name := range []string{"internal.v1.Tombstone", "*.*.*", "internal.*.*", "internal.*.Tombstone"} {
		answer, err := served.List(t.Context(), &resourcepb.ListRequest{Type: typeOf(name), Tenancy: everywhere})
		if err != nil || len(answer.GetResources()) != 1 {
			t.Errorf("%s: %v, %v", name, answer, err)
			continue
		}
		stone := answer.GetResources()[0].GetId()
		stone.Type = typeOf("internal.*.Tombstone")
		if _, err := served.Read(t.Context(), &resourcepb.ReadRequest{Id: stone}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
