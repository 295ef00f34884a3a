package servicetest

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage/resourcepb"
)

var accessCases = topic{"Access", []testCase{
	{name: "Callers", rules: []int{1, 3}, run: accessCallers},
	{name: "HookOrder", rules: []int{4}, run: accessHookOrder},
	{name: "DeniedWritesLeaveNoTrace", rules: []int{4}, run: accessNoTrace},
	{name: "ReadNeedsResource", rules: []int{1}, run: accessNeedsResource},
}}

// call is a method call on a stored thing.
type call struct {
	name   string
	writes bool
	call   func(s *suite, ctx context.Context, stored *resourcepb.Resource) error
}

// calls has one call of each method.
var calls = []call{
	{"Read", false, func(s *suite, ctx context.Context, r *resourcepb.Resource) error {
		return only(s.Read(ctx, &resourcepb.ReadRequest{Id: r.GetId()}))
	}},
	{"List", false, func(s *suite, ctx context.Context, r *resourcepb.Resource) error {
		return only(s.List(ctx, &resourcepb.ListRequest{Type: r.GetId().GetType(), Tenancy: r.GetId().GetTenancy()}))
	}},
	{"ListByOwner", false, func(s *suite, ctx context.Context, r *resourcepb.Resource) error {
		return only(s.ListByOwner(ctx, &resourcepb.ListByOwnerRequest{Owner: r.GetId()}))
	}},
	{"WatchList", false, func(s *suite, ctx context.Context, r *resourcepb.Resource) error {
		return s.watched(ctx, &resourcepb.WatchListRequest{Type: r.GetId().GetType()})
	}},
	{"Write", true, func(s *suite, ctx context.Context, r *resourcepb.Resource) error {
		return only(s.Write(ctx, &resourcepb.WriteRequest{Resource: newThing(r.GetId().GetName(), "other")}))
	}},
	{"MutateAndValidate", true, func(s *suite, ctx context.Context, r *resourcepb.Resource) error {
		return only(s.MutateAndValidate(ctx, &resourcepb.MutateAndValidateRequest{Resource: newThing(r.GetId().GetName(), "other")}))
	}},
	{"WriteStatus", true, func(s *suite, ctx context.Context, r *resourcepb.Resource) error {
		return only(s.WriteStatus(ctx, statusOf(r, "key", "message")))
	}},
	{"Delete", true, func(s *suite, ctx context.Context, r *resourcepb.Resource) error {
		return only(s.Delete(ctx, &resourcepb.DeleteRequest{Id: r.GetId()}))
	}},
}

// internal matches the text of an internal error. Error texts of hooks and databases are in the server's log only.
const internal = "^[a-z ]+: an internal error"

func accessCallers(s *suite) {
	stored := s.write(newThing("a", "content"))
	for _, c := range calls {
		rows := []row{
			{c.name + " by nobody", func(s *suite) error { return c.call(s, s.as(nobody), stored) }, codes.PermissionDenied, "nobody may not"},
			{c.name + " by a stranger", func(s *suite) error { return c.call(s, s.as(stranger), stored) }, codes.Unauthenticated,
				"unknown token"},
			{c.name + " with an undecided hook", func(s *suite) error { return c.call(s, s.as(undecided), stored) }, codes.Internal,
				internal},
			{c.name + " with failing authentication", func(s *suite) error { return c.call(s, s.as(unsettled), stored) }, codes.Internal,
				internal},
		}
		if c.writes {
			rows = append(rows, row{c.name + " by a reader", func(s *suite) error { return c.call(s, s.as(reader), stored) },
				codes.PermissionDenied, "reader may not write"})
		} else {
			s.succeeds(c.name+" by a reader", c.call(s, s.as(reader), stored))
		}
		s.refuse(rows)
	}
}

func accessHookOrder(s *suite) {
	log := func(what string, call func() error, want ...string) {
		s.Helper()
		s.world.calls()
		_ = call()                                                            // the result is tested by other cases
		if got := slices.Compact(s.world.calls()); !slices.Equal(got, want) { // an update also checks the stored resource
			s.Errorf("%s asks %q, expected %q", what, got, want)
		}
	}
	ask := "authenticate default/default"
	for _, name := range []string{"new", "stored"} {
		log("Write, "+name, func() error { return writes(newThing("a", incomplete))(s) }, ask, "mutate", "validate "+complete,
			"may write "+complete, "may read")
	}
	stored := s.read(newThing("a", "").GetId())
	log("MutateAndValidate", func() error { return validates(newThing("a", incomplete))(s) }, ask, "mutate", "validate "+complete,
		"may write "+complete)
	log("Write of a wrong payload", func() error {
		return writes(but(newThing("a", ""), func(r *resourcepb.Resource) { r.Data = binary("") }))(s)
	})
	log("Read", func() error { return only(s.Read(s.ctx, &resourcepb.ReadRequest{Id: stored.GetId()})) }, ask, "may read")
	log("List", func() error {
		return only(s.List(s.ctx, &resourcepb.ListRequest{Type: thing, Tenancy: stored.GetId().GetTenancy()}))
	}, ask, "may list", "may read")
	log("WriteStatus", func() error { return only(s.WriteStatus(s.ctx, statusOf(stored, "key", ""))) }, ask, "may write "+complete, "may read")
	log("Delete", func() error { return only(s.Delete(s.ctx, &resourcepb.DeleteRequest{Id: stored.GetId()})) }, ask, "may write "+complete)
}

func accessNoTrace(s *suite) {
	owner := s.write(newThing("owner", "content"))
	w := s.watch(&resourcepb.WatchListRequest{Type: thing})
	w.snapshot()
	var rows []row
	for _, name := range []string{"owner", "new"} {
		for _, token := range []string{reader, nobody} {
			rows = append(rows,
				row{"Write of " + name + " by " + token, func(s *suite) error {
					return only(s.Write(s.as(token), &resourcepb.WriteRequest{Resource: newThing(name, "other")}))
				}, codes.PermissionDenied, "may not write"},
				row{"Delete of " + name + " by " + token, func(s *suite) error {
					return only(s.Delete(s.as(token), &resourcepb.DeleteRequest{Id: idOf(thing, name)}))
				}, codes.PermissionDenied, "may not write"})
		}
		for _, content := range []string{refused, broken} {
			rows = append(rows, row{"Write of " + name + " as " + content, func(s *suite) error {
				return only(s.Write(s.as(nobody), &resourcepb.WriteRequest{Resource: newThing(name, content)}))
			}, map[string]codes.Code{refused: codes.InvalidArgument, broken: codes.Internal}[content], "."})
		}
	}
	s.refuse(rows)
	s.write(owned(newThing("flush", "content"), owner))
	w.upsert("flush") // the stream has no earlier event
}

// accessNeedsResource has a hook that needs the resource to decide.
func accessNeedsResource(s *suite) {
	s.write(with(newOf(secret, "a"), readableBy, reader))
	read := func(token, name string) error {
		return only(s.Read(s.as(token), &resourcepb.ReadRequest{Id: idOf(secret, name)}))
	}
	s.succeeds("Read by the secret's reader", read(reader, "a"))
	s.fails("Read by another caller", read("other", "a"), codes.PermissionDenied, "not for other")
	s.fails("Read of an absent resource", read("other", "b"), codes.NotFound, exactly(notFound))
}
