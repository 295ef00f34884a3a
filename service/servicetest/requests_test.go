package servicetest

import (
	"context"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var requestCases = topic{"Requests", []testCase{
	{name: "IDs", rules: []int{1}, run: requestIDs},
	{name: "Scopes", rules: []int{1}, run: requestScopes},
	{name: "Filters", rules: []int{1}, run: requestFilters},
	{name: "OrderOfChecks", rules: []int{1, 3}, run: requestOrder},
	{name: "Defaults", rules: []int{1, 2}, run: requestDefaults},
	{name: "AnswersBelongToTheCaller", rules: []int{2}, run: requestAnswers},
}}

// malformed are invalid names.
var malformed = []string{"", "A", "-a", "a-", "a_b", "a.b", "a/b", "a b", "ä", "*", "a\n", strings.Repeat("a", 64)}

func requestIDs(s *suite) {
	var rows []row
	for _, m := range methods {
		add := func(name, wantText string, id *resourcepb.ID) {
			rows = append(rows, row{m.name + " with " + name, func(s *suite) error { return m.call(s, s.ctx, id) }, codes.InvalidArgument, wantText})
		}
		add("no id", exactly(m.field+" is required"), nil)
		add("no type", exactly(m.field+".type is required"), &resourcepb.ID{Name: "a"})
		for _, name := range malformed {
			add("the name "+name, "^"+m.field+`\.name invalid: .`, idOf(thing, name))
			if name != "" {
				add("the partition "+name, "^"+m.field+`\.tenancy\.partition invalid: .`, in(name, "", newThing("a", "")).GetId())
				add("the namespace "+name, "^"+m.field+`\.tenancy\.namespace invalid: .`, in("", name, newThing("a", "")).GetId())
			}
		}
		add("a type that is not registered", exactly("resource type servicetest.v1.Ghost not registered"), idOf(unregistered, "a"))
		add("another version", exactly("resource type servicetest.v9.Thing not registered"),
			but(idOf(thing, "a"), func(id *resourcepb.ID) { id.Type.GroupVersion = "v9" }))
		add("an empty type", exactly("resource type .. not registered"), &resourcepb.ID{Name: "a", Type: &resourcepb.Type{}})
	}
	for name, wantText := range map[string]string{
		"":  exactly("resource.owner.type is required"),
		"-": `^resource\.owner\.name invalid: .`,
	} {
		owner := &resourcepb.ID{Name: name}
		if name != "" {
			owner.Type = clone(thing)
		}
		res := newThing("a", "content")
		res.Owner = owner
		rows = append(rows,
			row{"Write with the owner " + name, func(s *suite) error { return only(s.Write(s.ctx, &resourcepb.WriteRequest{Resource: res})) },
				codes.InvalidArgument, wantText},
			row{"MutateAndValidate with the owner " + name, func(s *suite) error {
				return only(s.MutateAndValidate(s.ctx, &resourcepb.MutateAndValidateRequest{Resource: res}))
			}, codes.InvalidArgument, wantText})
	}
	rows = append(rows,
		row{"Write without a resource", func(s *suite) error { return only(s.Write(s.ctx, &resourcepb.WriteRequest{})) }, codes.InvalidArgument,
			exactly("resource is required")},
		row{"MutateAndValidate without a resource", func(s *suite) error {
			return only(s.MutateAndValidate(s.ctx,
				&resourcepb.MutateAndValidateRequest{}))
		},
			codes.InvalidArgument, exactly("resource is required")},
	)
	s.refuse(rows)
}

// wrongScopes are the tenancies that types of a scope cannot have.
var wrongScopes = []struct {
	t                    *resourcepb.Type
	partition, namespace string
	wantText             string
}{
	{site, "", east, "partition scoped resource servicetest.v1.Site cannot have a namespace. got: east"},
	{site, "default", east, "partition scoped resource servicetest.v1.Site cannot have a namespace. got: east"},
	{planet, east, "", "cluster scoped resource servicetest.v1.Planet cannot have a partition: east"},
	{planet, "", east, "cluster scoped resource servicetest.v1.Planet cannot have a namespace: east"},
	{planet, "default", "default", "cluster scoped resource servicetest.v1.Planet cannot have a partition: default"},
}

func requestScopes(s *suite) {
	var rows []row
	for _, w := range wrongScopes {
		tenancy := &resourcepb.Tenancy{Partition: w.partition, Namespace: w.namespace}
		for _, m := range methods {
			id := in(w.partition, w.namespace, newOf(w.t, "a")).GetId()
			rows = append(rows, row{m.name + ": " + w.wantText, func(s *suite) error { return m.call(s, s.ctx, id) }, codes.InvalidArgument,
				exactly(w.wantText)})
		}
		rows = append(rows,
			row{"List: " + w.wantText, func(s *suite) error {
				return only(s.List(s.ctx, &resourcepb.ListRequest{Type: w.t, Tenancy: tenancy}))
			}, codes.InvalidArgument, exactly(w.wantText)},
			row{"WatchList: " + w.wantText, func(s *suite) error {
				return s.watched(s.ctx, &resourcepb.WatchListRequest{Type: w.t, Tenancy: tenancy})
			}, codes.InvalidArgument, exactly(w.wantText)})
	}
	s.refuse(rows)

	// A wildcard is accepted for a unit outside the scope.
	for _, t := range []*resourcepb.Type{site, planet} {
		s.write(newOf(t, "a"))
		answer, err := s.List(s.ctx, &resourcepb.ListRequest{Type: t, Tenancy: anywhere})
		s.succeeds("List with wildcards", err)
		if len(answer.GetResources()) != 1 {
			s.Errorf("List of %s with wildcards shows %d resources, expected 1", t.GetKind(), len(answer.GetResources()))
		}
		s.succeeds("WatchList with wildcards", s.watched(s.ctx, &resourcepb.WatchListRequest{Type: t, Tenancy: anywhere}))
	}
}

func requestFilters(s *suite) {
	type filter struct {
		name     string
		wantText string
		req      *resourcepb.ListRequest
	}
	home := &resourcepb.Tenancy{}
	filters := []filter{
		{"no type", exactly("type is required"), &resourcepb.ListRequest{Tenancy: home}},
		{"a type that is not registered", exactly("resource type servicetest.v1.Ghost not registered"),
			&resourcepb.ListRequest{Type: unregistered, Tenancy: home}},
		{"a wildcard for the kind alone", exactly("resource type servicetest.v1.* not registered"),
			&resourcepb.ListRequest{Type: &resourcepb.Type{Group: thing.Group, GroupVersion: thing.GroupVersion, Kind: "*"}, Tenancy: home}},
		{"a prefix in upper case", `^name_prefix invalid: .`, &resourcepb.ListRequest{Type: thing, Tenancy: home, NamePrefix: "A"}},
	}
	for _, name := range malformed {
		if name == "" || name == "*" {
			continue
		}
		filters = append(filters,
			filter{"the partition " + name, `^tenancy\.partition invalid: .`,
				&resourcepb.ListRequest{Type: thing, Tenancy: &resourcepb.Tenancy{Partition: name}}},
			filter{"the namespace " + name, `^tenancy\.namespace invalid: .`,
				&resourcepb.ListRequest{Type: thing, Tenancy: &resourcepb.Tenancy{Namespace: name}}})
	}
	var rows []row
	for _, f := range filters {
		rows = append(rows,
			row{"List with " + f.name, func(s *suite) error { return only(s.List(s.ctx, f.req)) }, codes.InvalidArgument, f.wantText},
			row{"WatchList with " + f.name, func(s *suite) error {
				return s.watched(s.ctx, &resourcepb.WatchListRequest{Type: f.req.GetType(), Tenancy: f.req.GetTenancy(),
					NamePrefix: f.req.GetNamePrefix()})
			}, codes.InvalidArgument, f.wantText})
	}
	lists := func(req *resourcepb.ListRequest) func(*suite) error {
		req.Type = thing
		return func(s *suite) error { return only(s.List(s.ctx, req)) }
	}
	watches := func(req *resourcepb.WatchListRequest) func(*suite) error {
		req.Type = thing
		return func(s *suite) error { return s.watched(s.ctx, req) }
	}
	if _, ok := storage.As[storage.Pager](s.store); ok {
		rows = append(rows, row{"List with garbage to continue", lists(&resourcepb.ListRequest{Tenancy: home, Limit: 1, Continue: "garbage"}),
			codes.InvalidArgument, "."})
	}
	if _, ok := storage.As[storage.Resumer](s.store); ok {
		rows = append(rows, row{"WatchList with a garbled cursor", watches(&resourcepb.WatchListRequest{Cursor: "garbage"}),
			codes.InvalidArgument, "."})
	}
	s.refuse(append(rows, []row{
		{"List with no tenancy", lists(&resourcepb.ListRequest{}), codes.InvalidArgument, exactly("tenancy is required")},
		{"List with a negative limit", lists(&resourcepb.ListRequest{Tenancy: home, Limit: -1}), codes.InvalidArgument, "^limit invalid: ."},
		{"List with a continuation and no limit", lists(&resourcepb.ListRequest{Tenancy: home, Continue: "garbage"}), codes.InvalidArgument,
			"limit"},
		{"WatchList with a bookmark at once", watches(&resourcepb.WatchListRequest{BookmarkInterval: seconds(0)}), codes.InvalidArgument,
			"^bookmark_interval invalid: ."},
		{"WatchList with a bookmark in the past", watches(&resourcepb.WatchListRequest{BookmarkInterval: seconds(-5)}), codes.InvalidArgument,
			"^bookmark_interval invalid: ."},
	}...))
}

// requestOrder starts with a request with all errors and fixes one at a time: shape, type, scope, caller, authorization,
// existence of the tenancy.
func requestOrder(s *suite) {
	all := []func(*suite, context.Context, *resourcepb.ID) error{}
	var names []string
	for _, m := range methods {
		all, names = append(all, m.call), append(names, m.name)
	}
	for i, call := range all {
		at := func(token string, id *resourcepb.ID) func(*suite) error {
			return func(s *suite) error { return call(s, s.as(token), id) }
		}
		exists := codes.NotFound // the code for a missing tenancy
		switch names[i] {
		case "Write", "MutateAndValidate":
			exists = codes.InvalidArgument
		}
		rows := []row{
			{names[i] + ": the shape comes before the type", at(stranger, in(missing, missing, newOf(unregistered, "-")).GetId()),
				codes.InvalidArgument, "name invalid"},
			{names[i] + ": the type comes before the scope", at(stranger, in(missing, missing, newOf(unregistered, "a")).GetId()),
				codes.InvalidArgument, "not registered"},
			{names[i] + ": the scope comes before the caller", at(stranger, in(missing, missing, newOf(planet, "a")).GetId()),
				codes.InvalidArgument, "cannot have a partition"},
			{names[i] + ": the caller comes before the tenancy", at(stranger, in(missing, missing, newThing("a", "")).GetId()),
				codes.Unauthenticated, "unknown token"},
			{names[i] + ": authorization comes before the tenancy", at(nobody, in(missing, missing, newThing("a", "")).GetId()),
				codes.PermissionDenied, "nobody may not"},
			{names[i] + ": authorization comes before the stored state", at(nobody, in(east, east, newThing("absent", "")).GetId()),
				codes.PermissionDenied, "nobody may not"},
		}
		if names[i] != "Delete" && names[i] != "ListByOwner" { // these do not check the tenancy
			rows = append(rows,
				row{names[i] + ": no such partition", at("", in(missing, "", newThing("a", "")).GetId()), exists,
					`not found.*missing|missing.*not found`},
				row{names[i] + ": no such namespace", at("", in("", missing, newThing("a", "")).GetId()), exists,
					`not found.*missing|missing.*not found`},
				row{names[i] + ": no such partition, of a type with no namespace", at("", in(missing, "", newOf(site, "a")).GetId()), exists,
					`not found.*missing`})
		}
		s.refuse(rows)
	}
	for _, token := range []string{stranger, nobody} {
		code := map[string]codes.Code{stranger: codes.Unauthenticated, nobody: codes.PermissionDenied}[token]
		tenancy := &resourcepb.Tenancy{Partition: missing}
		s.refuse([]row{
			{"List: the caller comes before the tenancy", func(s *suite) error {
				return only(s.List(s.as(token), &resourcepb.ListRequest{Type: thing, Tenancy: tenancy}))
			}, code, "."},
			{"WatchList: the caller comes before the tenancy", func(s *suite) error {
				return s.watched(s.as(token), &resourcepb.WatchListRequest{Type: thing, Tenancy: tenancy})
			}, code, "."},
		})
	}
}

// requestDefaults omits the tenancy, partly and completely: the service fills it in by scope and returns it. The client of the suite
// checks with every call that requests are not modified.
func requestDefaults(s *suite) {
	for i, want := range []struct {
		t                    *resourcepb.Type
		given                *resourcepb.Tenancy
		partition, namespace string
	}{
		{thing, nil, "default", "default"},
		{thing, &resourcepb.Tenancy{}, "default", "default"},
		{thing, &resourcepb.Tenancy{Partition: east}, east, "default"},
		{thing, &resourcepb.Tenancy{Namespace: east}, "default", east},
		{site, nil, "default", ""},
		{site, &resourcepb.Tenancy{Partition: east}, east, ""},
		{planet, nil, "", ""},
	} {
		name := "name-" + string(rune('a'+i))
		tenancy := &resourcepb.Tenancy{Partition: want.partition, Namespace: want.namespace}
		res := newOf(want.t, name)
		res.Id.Tenancy = want.given
		validated, err := s.MutateAndValidate(s.ctx, &resourcepb.MutateAndValidateRequest{Resource: res})
		s.succeeds("MutateAndValidate", err)
		s.same("the tenancy after MutateAndValidate", validated.GetResource().GetId().GetTenancy(), tenancy)
		written := s.write(res)
		s.same("the tenancy after Write", written.GetId().GetTenancy(), tenancy)
		s.same("Read", s.read(res.GetId()), written)
		req := statusOf(written, "key", "message")
		req.Id.Tenancy = want.given
		s.same("the tenancy after WriteStatus", s.writeStatus(req).GetId().GetTenancy(), tenancy)
		owner := clone(written.GetId())
		owner.Tenancy = want.given
		_, err = s.ListByOwner(s.ctx, &resourcepb.ListByOwnerRequest{Owner: owner})
		s.succeeds("ListByOwner", err)
		listed := &resourcepb.ListRequest{Type: want.t,
			Tenancy: &resourcepb.Tenancy{Partition: want.given.GetPartition(), Namespace: want.given.GetNamespace()}, NamePrefix: name}
		answer, err := s.List(s.ctx, listed)
		s.succeeds("List", err)
		if len(answer.GetResources()) != 1 {
			s.Errorf("List of %s in %v shows %d resources, expected 1", want.t.GetKind(), want.given, len(answer.GetResources()))
		}
		s.succeeds("WatchList", s.watched(s.ctx, &resourcepb.WatchListRequest{Type: want.t, Tenancy: want.given}))
		s.delete(res.GetId())
		if s.stored(written.GetId()) {
			s.Errorf("%s is still stored after Delete", text(res.GetId()))
		}
	}
}

// requestAnswers modifies requests and responses, and checks that this has no effect.
func requestAnswers(s *suite) {
	w := s.watch(&resourcepb.WatchListRequest{Type: thing})
	w.snapshot()
	req := newThing("a", "content")
	req.Metadata = map[string]string{"key": "value"}
	written := s.write(req)
	want := clone(written)
	scribble := func(res *resourcepb.Resource) {
		res.Id.Name, res.Version = "scribbled", "scribbled"
		if res.GetId().GetTenancy() != nil {
			res.Id.Tenancy.Namespace = "scribbled"
		}
		if res.GetData() != nil {
			clear(res.Data.Value)
		}
		clear(res.Metadata)
		for _, st := range res.GetStatus() {
			st.ObservedGeneration = "scribbled"
		}
		clear(res.Status)
	}
	scribble(written)
	scribble(req)
	s.same("Read after modifying the answer of Write", s.read(want.GetId()), want)
	scribble(s.read(want.GetId()))
	s.same("Read after modifying the answer of Read", s.read(want.GetId()), want)
	event := w.upsert("a")
	s.same("the event of a write with a modified answer", event, want)
	scribble(event)
	st := s.writeStatus(statusOf(want, "key", "message"))
	want = clone(st)
	scribble(st)
	s.same("Read after modifying the answer of WriteStatus", s.read(want.GetId()), want)
	answer, err := s.List(s.ctx, &resourcepb.ListRequest{Type: thing, Tenancy: &resourcepb.Tenancy{}})
	s.succeeds("List", err)
	for _, res := range answer.GetResources() {
		scribble(res)
	}
	s.same("Read after modifying the answer of List", s.read(want.GetId()), want)
	s.same("the event of WriteStatus", w.upsert("a"), want)
}
