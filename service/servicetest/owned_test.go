package servicetest

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

var ownedCases = topic{"ListByOwner", []testCase{
	{name: "Table", rules: []int{1}, run: ownedTable},
	{name: "Pages", rules: []int{1}, run: ownedPages},
	{name: "Access", rules: []int{20}, run: ownedAccess},
}}

// owned returns a resource with an owner.
func owned(res, owner *resourcepb.Resource) *resourcepb.Resource {
	res.Owner = owner.GetId()
	return res
}

func ownedTable(s *suite) {
	owner, other := s.write(newThing("owner", "content")), s.write(newThing("other", "content"))
	byOwner := func(id *resourcepb.ID) func(*suite) error {
		return func(s *suite) error { return only(s.ListByOwner(s.ctx, &resourcepb.ListByOwnerRequest{Owner: id})) }
	}
	s.refuse([]row{
		{"no uid", byOwner(but(owner.GetId(), func(id *resourcepb.ID) { id.Uid = "" })), codes.InvalidArgument, exactly("owner.uid is required")},
		{"a wildcard", byOwner(but(owner.GetId(), func(id *resourcepb.ID) { id.Tenancy.Namespace = "*" })), codes.InvalidArgument,
			`^owner\.tenancy\.namespace invalid: .`},
		{"a negative limit", func(s *suite) error {
			return only(s.ListByOwner(s.ctx, &resourcepb.ListByOwnerRequest{Owner: owner.GetId(), Limit: -1}))
		}, codes.InvalidArgument, "^limit invalid: ."},
		{"garbage to continue", func(s *suite) error {
			return only(s.ListByOwner(s.ctx, &resourcepb.ListByOwnerRequest{Owner: owner.GetId(), Limit: 1, Continue: "garbage"}))
		}, codes.InvalidArgument, "^continue invalid: ."},
	})
	list := func(id *resourcepb.ID) []*resourcepb.Resource {
		answer, err := s.ListByOwner(s.ctx, &resourcepb.ListByOwnerRequest{Owner: id})
		s.succeeds("ListByOwner", err)
		return answer.GetResources()
	}
	s.shows("the children of a childless owner", list(owner.GetId()))
	a := s.write(owned(newThing("a", "content"), owner))
	s.write(owned(in("", east, newThing("b", "content")), owner))
	s.write(owned(newOf(secret, "c"), owner))
	s.write(owned(newOf(planet, "d"), owner))
	s.write(owned(newThing("e", "content"), other))
	s.write(owned(&resourcepb.Resource{Id: idOf(thing2, "f"), Data: binary("content")}, owner))
	// A child of an unregistered type is omitted.
	ghost := owned(newOf(unregistered, "g"), owner)
	ghost.Id.Uid, ghost.Id.Tenancy = stale, &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	if _, err := s.store.WriteCAS(s.ctx, ghost); err != nil {
		s.Fatal(err)
	}
	children := list(owner.GetId())
	s.shows("the children of an owner", children, "d", "c", "a", "f", "b")
	for _, res := range children {
		if proto.Equal(res.GetId(), a.GetId()) {
			s.same("a child", res, a)
		}
	}
	s.shows("the children of another incarnation", list(but(owner.GetId(), func(id *resourcepb.ID) { id.Uid = stale })))
	s.delete(a.GetId())
	s.write(newThing("a", "content")) // recreated, without an owner
	s.shows("the list after a child was created again", list(owner.GetId()), "d", "c", "f", "b")
}

func ownedPages(s *suite) {
	owner := s.write(newThing("owner", "content"))
	var want []string
	for i := range 7 {
		want = append(want, fmt.Sprintf("name-%d", i))
		s.write(owned(newThing(want[i], "content"), owner))
	}
	for _, limit := range []int32{1, 3, 7, 100} {
		var got []*resourcepb.Resource
		req := &resourcepb.ListByOwnerRequest{Owner: owner.GetId(), Limit: limit}
		for {
			page, err := s.ListByOwner(s.ctx, req)
			s.succeeds("ListByOwner of a page", err)
			got = append(got, page.GetResources()...)
			if len(page.GetResources()) > int(limit) {
				s.Fatalf("a page of %d has %d resources", limit, len(page.GetResources()))
			}
			if page.GetContinue() == "" {
				break
			}
			req.Continue = page.GetContinue()
		}
		s.shows(fmt.Sprintf("pages of %d", limit), got, want...)
	}
}

func ownedAccess(s *suite) {
	owner := s.write(newThing("owner", "content"))
	s.write(with(owned(newOf(secret, "a"), owner), readableBy, reader))
	s.write(owned(newOf(secret, "b"), owner))
	answer, err := s.ListByOwner(s.as(reader), &resourcepb.ListByOwnerRequest{Owner: owner.GetId()})
	s.succeeds("ListByOwner", err)
	s.shows("the resource that a reader sees", answer.GetResources(), "a")
}
