package servicetest

import (
	"context"
	"fmt"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var wildcardCases = topic{"Wildcards", []testCase{
	{name: "Refused", rules: []int{1, 27}, run: wildcardsRefused},
	{name: "Read", rules: []int{1, 3, 27}, run: wildcardRead},
	{name: "Lists", rules: []int{27}, run: wildcardLists},
	{name: "Pages", rules: []int{27}, run: wildcardPages},
	{name: "Access", rules: []int{3, 20, 27}, run: wildcardAccess},
	{name: "Watch", rules: []int{10, 18, 27}, run: wildcardWatch},
}}

// Names with wildcards: for all versions of things, for all types of the suite, and for all types.
var (
	anyThing = &resourcepb.Type{Group: "servicetest", GroupVersion: storage.Wildcard, Kind: "Thing"}
	anyOfUs  = &resourcepb.Type{Group: "servicetest", GroupVersion: storage.Wildcard, Kind: storage.Wildcard}
	anyType  = &resourcepb.Type{Group: storage.Wildcard, GroupVersion: storage.Wildcard, Kind: storage.Wildcard}
)

// unserved is a type name with an unregistered version.
func unserved(t *resourcepb.Type) *resourcepb.Type {
	return but(t, func(t *resourcepb.Type) { t.GroupVersion = "v9" })
}

// various stores a resource of each type, and some that no name shows: of an unregistered type, and of an unregistered version.
func (s *suite) various() {
	s.Helper()
	s.write(newThing("a", "content"))
	s.write(&resourcepb.Resource{Id: idOf(thing2, "b"), Data: binary("content")})
	s.write(in("", east, newThing("c", "content")))
	s.write(newOf(site, "d"))
	s.write(with(newOf(secret, "e"), readableBy, reader))
	s.write(newOf(planet, "f"))
	s.smuggle(newOf(unregistered, "g"))
	s.smuggle(newOf(unserved(thing), "h"))
	s.smuggle(with(newOf(unserved(secret), "i"), readableBy, "other"))
}

// smuggle writes a resource of the default tenancy directly to the store.
func (s *suite) smuggle(res *resourcepb.Resource) {
	s.Helper()
	res = but(res, func(r *resourcepb.Resource) {
		r.Id.Tenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
		r.Id = withUid(r.GetId())
	})
	_, err := s.store.WriteCAS(s.ctx, res)
	s.succeeds("write to the store", err)
}

func wildcardsRefused(s *suite) {
	s.various()
	var rows []row
	for _, m := range methods {
		if m.name == "Read" || m.name == "ListByOwner" {
			continue
		}
		rows = append(rows, row{m.name + " of any version", func(s *suite) error { return m.call(s, s.ctx, idOf(anyThing, "a")) },
			codes.InvalidArgument, `servicetest\.\*\.Thing not registered`})
	}
	for name, says := range map[*resourcepb.Type]string{
		{Group: "servicetest", GroupVersion: "*", Kind: "Ghost"}: "not registered",
		{Group: "servicetest", GroupVersion: "v1", Kind: "*"}:    "not registered",
		{Group: "nowhere", GroupVersion: "*", Kind: "*"}:         "not registered",
		{Group: "*", GroupVersion: "*", Kind: "Thing"}:           "type invalid",
		{Group: "*", GroupVersion: "v1", Kind: "Thing"}:          "not registered",
	} {
		what := fmt.Sprintf("%s/%s/%s", name.GetGroup(), name.GetGroupVersion(), name.GetKind())
		rows = append(rows,
			row{"List of " + what, func(s *suite) error {
				return only(s.List(s.ctx, &resourcepb.ListRequest{Type: name, Tenancy: anywhere}))
			}, codes.InvalidArgument, says},
			row{"WatchList of " + what, func(s *suite) error {
				return s.watched(s.ctx, &resourcepb.WatchListRequest{Type: name})
			}, codes.InvalidArgument, says})
	}
	s.refuse(rows)
}

// wildcardRead reads any version.
func wildcardRead(s *suite) {
	s.various()
	for name, t := range map[string]*resourcepb.Type{"a": thing, "b": thing2} {
		stored := s.read(idOf(t, name))
		s.same("Read of any version", s.read(idOf(anyThing, name)), stored)
		s.same("Read of any version by uid", s.read(but(stored.GetId(), func(id *resourcepb.ID) { id.Type = anyThing })), stored)
	}
	reads := func(ctx context.Context, id *resourcepb.ID) func(*suite) error {
		return func(s *suite) error { return only(s.Read(ctx, &resourcepb.ReadRequest{Id: id})) }
	}
	anySecret := but(secret, func(t *resourcepb.Type) { t.GroupVersion = storage.Wildcard })
	nowhere := in(missing, missing, newOf(anyThing, "a")).GetId()
	s.refuse([]row{
		{"Read of an absent resource", reads(s.ctx, idOf(anyThing, "nothing")), codes.NotFound, exactly(notFound)},
		{"Read of another uid", reads(s.ctx, but(idOf(anyThing, "b"), func(id *resourcepb.ID) { id.Uid = stale })), codes.NotFound,
			exactly(notFound)},
		{"Read of a version that is not served", reads(s.ctx, idOf(anyThing, "h")), codes.InvalidArgument, "v9.*not registered"},
		{"Read of any kind", reads(s.ctx, idOf(anyOfUs, "a")), codes.InvalidArgument, "."},
		{"Read by another caller", reads(s.as("other"), idOf(anySecret, "e")), codes.PermissionDenied, "this secret is not for other"},
		{"Read by another caller of an unregistered version", reads(s.as(reader), idOf(anySecret, "i")), codes.PermissionDenied,
			"this secret is not for reader"},
		{"Read by nobody", reads(s.as(nobody), idOf(anyThing, "a")), codes.PermissionDenied, "nobody may not"},
		{"Read by nobody of a missing tenancy", reads(s.as(nobody), nowhere), codes.PermissionDenied, "nobody may not"},
		{"Read in a missing tenancy", reads(s.ctx, nowhere), codes.NotFound, "tenancy not found"},
	})
}

// wildcardLists expects the order of keys, which ignores group versions, and only resources that a list by the name of their
// own type returns too.
func wildcardLists(s *suite) {
	s.various()
	unit := func(partition, namespace string) *resourcepb.Tenancy {
		return &resourcepb.Tenancy{Partition: partition, Namespace: namespace}
	}
	for _, tt := range []struct {
		t      *resourcepb.Type
		in     *resourcepb.Tenancy
		prefix string
		want   []string
	}{
		{anyThing, anywhere, "", []string{"a", "b", "c"}},
		{anyOfUs, anywhere, "", []string{"f", "e", "d", "a", "b", "c"}},
		{anyType, anywhere, "", []string{"f", "e", "d", "a", "b", "c"}},
		{anyThing, unit("default", east), "", []string{"c"}},
		{anyOfUs, unit("default", "*"), "", []string{"e", "d", "a", "b", "c"}},
		{anyOfUs, unit("default", "default"), "", []string{"e", "a", "b"}},
		{anyOfUs, unit("*", "default"), "b", []string{"b"}},
		{anyType, unit(missing, "*"), "", nil},
	} {
		what := fmt.Sprintf("the list of %s in %s with prefix %q", text(tt.t), text(tt.in), tt.prefix)
		answer, err := s.List(s.ctx, &resourcepb.ListRequest{Type: tt.t, Tenancy: tt.in, NamePrefix: tt.prefix})
		s.succeeds(what, err)
		s.shows(what, answer.GetResources(), tt.want...)
		w := s.watch(&resourcepb.WatchListRequest{Type: tt.t, Tenancy: tt.in, NamePrefix: tt.prefix})
		s.shows("the snapshot of "+what, w.snapshot(), tt.want...)
		w.cancel()
	}
}

// wildcardPages lists in pages of all sizes, as a caller that may read everything and as one that may not.
func wildcardPages(s *suite) {
	if _, ok := storage.As[storage.Pager](s.store); !ok {
		return // List/Pages tests it
	}
	s.various()
	for who, want := range map[string][]string{"": {"f", "e", "d", "a", "b", "c"}, "other": {"f", "d", "a", "b", "c"}} {
		for limit := range int32(len(want) + 2) {
			req := &resourcepb.ListRequest{Type: anyType, Tenancy: anywhere, Limit: limit + 1}
			var got []*resourcepb.Resource
			for {
				page, err := s.List(s.as(who), req)
				s.succeeds("List of a page", err)
				if got = append(got, page.GetResources()...); len(page.GetResources()) > int(req.GetLimit()) || len(got) > len(want) {
					s.Fatalf("pages of %d repeat %s", req.GetLimit(), text(page))
				}
				if page.GetContinue() == "" {
					break
				}
				req.Continue = page.GetContinue()
			}
			s.shows(fmt.Sprintf("pages of %d for %q", req.GetLimit(), who), got, want...)
		}
	}
}

// wildcardAccess lists as several callers.
func wildcardAccess(s *suite) {
	s.various()
	for who, want := range map[string][]string{
		"": {"f", "e", "d", "a", "b", "c"}, reader: {"f", "e", "d", "a", "b", "c"}, "other": {"f", "d", "a", "b", "c"},
	} {
		for _, t := range []*resourcepb.Type{anyOfUs, anyType} {
			answer, err := s.List(s.as(who), &resourcepb.ListRequest{Type: t, Tenancy: anywhere})
			s.succeeds("List", err)
			s.shows("the list of "+who, answer.GetResources(), want...)
			w := s.watchAs(s.as(who), &resourcepb.WatchListRequest{Type: t})
			s.shows("the snapshot of "+who, w.snapshot(), want...)
		}
	}
	for _, who := range []struct {
		token string
		code  codes.Code
	}{{nobody, codes.PermissionDenied}, {stranger, codes.Unauthenticated}, {undecided, codes.Internal}} {
		ctx := s.as(who.token)
		s.fails("the list of "+who.token, only(s.List(ctx, &resourcepb.ListRequest{Type: anyThing, Tenancy: anywhere})), who.code, ".")
		s.fails("the watch of "+who.token, s.watched(ctx, &resourcepb.WatchListRequest{Type: anyThing}), who.code, ".")
	}
}

// wildcardWatch moves resources between versions, and out of the stream's view.
func wildcardWatch(s *suite) {
	s.various()
	w := s.watchAs(s.as(reader), &resourcepb.WatchListRequest{Type: anyOfUs})
	s.shows("the snapshot", w.snapshot(), "f", "e", "d", "a", "b", "c")
	moved := s.write(&resourcepb.Resource{Id: idOf(thing2, "a"), Data: binary("moved")})
	s.same("the event of another version", w.upsert("a"), moved) // in the view, too: nothing was deleted

	s.smuggle(but(newOf(unregistered, "never seen"), func(r *resourcepb.Resource) { r.Id.Name = "j" }))
	s.smuggle(but(moved, func(r *resourcepb.Resource) { r.Id.Type = unserved(thing) }))
	s.left(w.deleted("a"), moved)
	visible := s.read(idOf(secret, "e"))
	s.write(with(newOf(secret, "e"), readableBy, "other"))
	s.left(w.deleted("e"), visible)

	b := s.read(idOf(thing2, "b"))
	s.delete(b.GetId())
	s.same("the event of a deletion", w.deleted("b"), b)
	z := s.write(newThing("z", "content"))
	s.same("the event of a creation", w.upsert("z"), z)
}

// left checks that the deletion of a resource that left a stream's view does not disclose the stored state.
func (s *suite) left(gone, was *resourcepb.Resource) {
	s.Helper()
	want := &resourcepb.Resource{Id: clone(was.GetId())}
	want.Id.Type.GroupVersion = storage.Wildcard
	s.same("the deletion of a leaving resource", gone, want)
}
