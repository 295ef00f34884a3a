package service_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// typeOf parses group.version.Kind.
func typeOf(name string) *resourcepb.Type {
	parts := strings.Split(name, ".")
	return &resourcepb.Type{Group: parts[0], GroupVersion: parts[1], Kind: parts[2]}
}

// write stores an empty resource of a type, named after its group version.
func write(t *testing.T, c resourcegrpc.ResourceServiceClient, name string, metadata map[string]string) {
	t.Helper()
	typ := typeOf(name)
	res := &resourcepb.Resource{Id: &resourcepb.ID{Type: typ, Name: "of-" + typ.GetGroupVersion()}, Metadata: metadata}
	if _, err := c.Write(t.Context(), &resourcepb.WriteRequest{Resource: res}); err != nil {
		t.Fatal(name, err)
	}
}

// mixedTypes returns a service of a few types over a store with one resource of each type and one of an unregistered type. Callers may neither list
// secrets nor read memos. The second result is a service of all types over the same store.
func mixedTypes(t *testing.T) (served, all resourcegrpc.ResourceServiceClient) {
	t.Helper()
	hidden := func(name string) (made registry.Type) {
		made = registry.Type{Type: typeOf(name), Proto: &wrapperspb.StringValue{}, Scope: registry.ScopeNamespace}
		switch made.Type.GetKind() {
		case "Secret":
			made.MayList = func(registry.Caller, *resourcepb.Type, *resourcepb.Tenancy) error { return registry.ErrDenied }
		case "Memo":
			made.MayRead = func(_ registry.Caller, _ *resourcepb.ID, res *resourcepb.Resource) error {
				if res == nil {
					return registry.ErrNeedResource
				}
				return registry.ErrDenied
			}
		}
		return made
	}
	types, err := registry.New(hidden("demo.v1.Album"), hidden("demo.v2.Album"), hidden("demo.v1.Secret"), hidden("demo.v1.Memo"), hidden("other.v1.Album"))
	if err != nil {
		t.Fatal(err)
	}
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	all = service.New(b, registry.NewOpen(registry.Type{}), nil).Client()
	for _, name := range []string{"demo.v1.Album", "demo.v2.Album", "demo.v1.Memo", "demo.v1.Secret", "demo.v1.Stranger", "other.v1.Album"} {
		write(t, all, name, nil)
	}
	return service.New(b, types, nil).Client(), all
}

// namesOf returns the types and names of resources.
func namesOf(all []*resourcepb.Resource) (names []string) {
	for _, res := range all {
		names = append(names, registry.Name(res.GetId().GetType())+"/"+res.GetId().GetName())
	}
	return names
}

func TestListsOfAnyType(t *testing.T) {
	t.Parallel()
	served, all := mixedTypes(t)
	everywhere := &resourcepb.Tenancy{Partition: "*", Namespace: "*"}
	for _, tc := range []struct {
		name string
		c    resourcegrpc.ResourceServiceClient
		want []string
	}{
		{"demo.*.Album", served, []string{"demo.v1.Album/of-v1", "demo.v2.Album/of-v2"}},
		{"demo.*.*", served, []string{"demo.v1.Album/of-v1", "demo.v2.Album/of-v2"}},
		{"*.*.*", served, []string{"demo.v1.Album/of-v1", "demo.v2.Album/of-v2", "other.v1.Album/of-v1"}},
		{"*.*.*", all, []string{"demo.v1.Album/of-v1", "demo.v2.Album/of-v2", "demo.v1.Memo/of-v1", "demo.v1.Secret/of-v1", "demo.v1.Stranger/of-v1", "other.v1.Album/of-v1"}},
	} {
		answer, err := tc.c.List(t.Context(), &resourcepb.ListRequest{Type: typeOf(tc.name), Tenancy: everywhere})
		if got := namesOf(answer.GetResources()); err != nil || !slices.Equal(got, tc.want) {
			t.Errorf("%s: %v, %v, not %v", tc.name, got, err, tc.want)
		}
	}
	for name, want := range map[string]codes.Code{
		"demo.*.Secret":   codes.PermissionDenied,
		"demo.*.Stranger": codes.InvalidArgument, // not registered
		"*.*.Album":       codes.InvalidArgument,
		"*.v1.*":          codes.InvalidArgument,
		"demo.v1.*":       codes.InvalidArgument,
	} {
		if _, err := served.List(t.Context(), &resourcepb.ListRequest{Type: typeOf(name), Tenancy: everywhere}); status.Code(err) != want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadsOfAnyVersion(t *testing.T) {
	t.Parallel()
	served, all := mixedTypes(t)
	read := func(c resourcegrpc.ResourceServiceClient, typ, name string) (*resourcepb.Resource, error) {
		answer, err := c.Read(t.Context(), &resourcepb.ReadRequest{Id: &resourcepb.ID{Type: typeOf(typ), Name: name}})
		return answer.GetResource(), err
	}
	for _, version := range []string{"v1", "v2"} {
		res, err := read(served, "demo.*.Album", "of-"+version)
		if err != nil || res.GetId().GetType().GetGroupVersion() != version {
			t.Errorf("%s: %v, %v", version, res, err)
		}
	}
	if res, err := read(all, "demo.*.Stranger", "of-v1"); err != nil || res.GetId().GetType().GetGroupVersion() != "v1" {
		t.Error(res, err)
	}
	write(t, all, "demo.v3.Album", nil) // a version that is not served
	for _, tc := range []struct {
		typ, name string
		want      codes.Code
	}{
		{"demo.*.Album", "nobody", codes.NotFound},
		{"demo.*.Album", "of-v3", codes.InvalidArgument},
		{"demo.*.Memo", "of-v1", codes.PermissionDenied},
		{"demo.*.Stranger", "of-v1", codes.InvalidArgument},
		{"demo.*.*", "of-v1", codes.InvalidArgument},
	} {
		if _, err := read(served, tc.typ, tc.name); status.Code(err) != tc.want {
			t.Errorf("%s/%s: %v, not %v", tc.typ, tc.name, err, tc.want)
		}
	}
	if _, err := served.Write(t.Context(), &resourcepb.WriteRequest{Resource: &resourcepb.Resource{
		Id: &resourcepb.ID{Type: typeOf("demo.*.Album"), Name: "a"},
	}}); status.Code(err) != codes.InvalidArgument {
		t.Error("nothing is of several versions:", err)
	}
}

// A watch of several types reports the resources that leave its view, and none that were never in it, even with equal names.
func TestWatchOfAnyType(t *testing.T) {
	t.Parallel()
	served, all := mixedTypes(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	events, err := served.WatchList(ctx, &resourcepb.WatchListRequest{Type: typeOf("*.*.*")})
	if err != nil {
		t.Fatal(err)
	}
	more := map[string]string{"a": "b"}
	write(t, all, "other.v1.Album", more)
	write(t, all, "demo.v1.Stranger", more)
	write(t, all, "demo.v1.Memo", more)
	if _, err := all.Write(ctx, &resourcepb.WriteRequest{Resource: &resourcepb.Resource{ // to a version that is not served
		Id: &resourcepb.ID{Type: typeOf("demo.v9.Album"), Name: "of-v1"},
	}}); err != nil {
		t.Fatal(err)
	}
	write(t, all, "other.v1.Album", nil)
	var got []string
	for range 7 {
		ev, err := events.Recv()
		if err != nil {
			t.Fatal(err)
		}
		what := "end"
		if res := ev.GetUpsert().GetResource(); res != nil {
			what = "upsert " + namesOf([]*resourcepb.Resource{res})[0]
		} else if res := ev.GetDelete().GetResource(); res != nil {
			what = "delete " + namesOf([]*resourcepb.Resource{res})[0]
		}
		got = append(got, what)
	}
	want := []string{
		"upsert demo.v1.Album/of-v1", "upsert demo.v2.Album/of-v2", "upsert other.v1.Album/of-v1", "end",
		"upsert other.v1.Album/of-v1", "delete demo.*.Album/of-v1", "upsert other.v1.Album/of-v1",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, not %q", got, want)
	}
}
