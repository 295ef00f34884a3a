package service_test

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// A page ends below 4 MiB, the default limit of gRPC's clients, whatever its limit. The pages together have every resource once.
func TestPagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	c := service.New(b, registry.NewOpen(registry.Type{}), nil).Client()
	owner := store(t.Context(), t, b, album("owner", ""), "here", "v1").GetId()
	const count = 9
	for i := range count {
		res := album(fmt.Sprintf("x%d", i), strings.Repeat("x", 1<<20-1000))
		res.Owner = owner
		store(t.Context(), t, b, res, "here", "v1")
	}
	for name, list := range map[string]func(token string) (size int, resources []*resourcepb.Resource, next string, err error){
		"List": func(token string) (int, []*resourcepb.Resource, string, error) {
			out, err := c.List(t.Context(), &resourcepb.ListRequest{Type: albumType, Tenancy: owner.GetTenancy(), NamePrefix: "x", Limit: 1000, Continue: token})
			return proto.Size(out), out.GetResources(), out.GetContinue(), err
		},
		"ListByOwner": func(token string) (int, []*resourcepb.Resource, string, error) {
			out, err := c.ListByOwner(t.Context(), &resourcepb.ListByOwnerRequest{Owner: owner, Limit: 1000, Continue: token})
			return proto.Size(out), out.GetResources(), out.GetContinue(), err
		},
	} {
		var got []string
		for token := ""; ; {
			size, page, next, err := list(token)
			if err != nil || size >= 4<<20 || len(page) == 0 {
				t.Fatalf("%s: a page of %d bytes and %d resources: %v", name, size, len(page), err)
			}
			for _, res := range page {
				got = append(got, res.GetId().GetName())
			}
			if token = next; token == "" {
				break
			}
		}
		if want := "x0 x1 x2 x3 x4 x5 x6 x7 x8"; strings.Join(got, " ") != want {
			t.Errorf("%s: the pages have %v", name, got)
		}
	}
}

// A list without a limit that is larger than MaxList is refused; its pages are not.
func TestMaxList(t *testing.T) {
	t.Parallel()
	b := inmem.New(nil)
	t.Cleanup(func() { b.Close() })
	server := service.New(b, registry.NewOpen(registry.Type{}), &service.Options{MaxList: 10_000})
	owner := store(t.Context(), t, b, album("owner", ""), "here", "v1").GetId()
	add := func(name string) {
		res := album(name, strings.Repeat("x", 4000))
		res.Owner = owner
		store(t.Context(), t, b, res, "here", "v1")
	}
	list := func(limit int32) (counts [2]int, errs [2]error) {
		all, err := server.List(t.Context(), &resourcepb.ListRequest{Type: albumType, Tenancy: owner.GetTenancy(), NamePrefix: "x", Limit: limit})
		owned, ownedErr := server.ListByOwner(t.Context(), &resourcepb.ListByOwnerRequest{Owner: owner, Limit: limit})
		return [2]int{len(all.GetResources()), len(owned.GetResources())}, [2]error{err, ownedErr}
	}
	add("x1")
	add("x2")
	if counts, errs := list(0); counts != [2]int{2, 2} {
		t.Errorf("lists below the limit: %v, %v", counts, errs)
	}
	add("x3")
	if counts, errs := list(5); counts != [2]int{3, 3} {
		t.Errorf("pages: %v, %v", counts, errs)
	}
	_, errs := list(0)
	for _, err := range errs {
		if status.Code(err) != codes.ResourceExhausted {
			t.Errorf("a list above the limit: %v", err)
		}
	}
}
