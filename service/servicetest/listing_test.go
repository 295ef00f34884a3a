package servicetest

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var listCases = topic{"List", []testCase{
	{name: "Filters", rules: []int{1}, run: listFilters},
	{name: "OtherVersions", rules: []int{1, 10}, run: listVersions},
	{name: "Pages", rules: []int{1}, run: listPages},
	{name: "OneAuthorizerPerTenancy", rules: []int{20}, run: listAuthorizers},
	{name: "Access", rules: []int{20}, run: listAccess},
}}

// shows checks the names in a list, in order.
func (s *suite) shows(what string, got []*resourcepb.Resource, want ...string) {
	s.Helper()
	names := make([]string, 0, len(got))
	for _, res := range got {
		names = append(names, res.GetId().GetName())
	}
	if !slices.Equal(names, want) {
		s.Errorf("%s shows %v, expected %v", what, names, want)
	}
}

func listFilters(s *suite) {
	for _, name := range []string{"a", "ab", "b"} {
		s.write(newThing(name, "content"))
	}
	s.write(in("", east, newThing("c", "content")))
	s.write(in(east, "", newThing("d", "content")))
	s.write(in(east, east, newThing("e", "content")))
	s.write(newOf(secret, "f"))
	for _, tt := range []struct {
		partition, namespace, prefix string
		want                         []string
	}{
		{"", "", "", []string{"a", "ab", "b"}},
		{"default", "default", "a", []string{"a", "ab"}},
		{"default", "", "ab", []string{"ab"}},
		{"", "*", "", []string{"a", "ab", "b", "c"}},
		{"*", "", "", []string{"a", "ab", "b", "d"}},
		{"*", "*", "", []string{"a", "ab", "b", "c", "d", "e"}},
		{east, "*", "", []string{"d", "e"}},
		{"*", east, "", []string{"c", "e"}},
		{missing, missing, "", nil},
		{"", "", "-", nil},
		{"", "", "a%", nil},
	} {
		what := fmt.Sprintf("the list of %q/%q with prefix %q", tt.partition, tt.namespace, tt.prefix)
		req := &resourcepb.ListRequest{Type: thing, Tenancy: &resourcepb.Tenancy{Partition: tt.partition, Namespace: tt.namespace},
			NamePrefix: tt.prefix}
		answer, err := s.List(s.ctx, req)
		s.succeeds(what, err)
		s.shows(what, answer.GetResources(), tt.want...)
		w := s.watch(&resourcepb.WatchListRequest{Type: thing, Tenancy: req.GetTenancy(), NamePrefix: tt.prefix})
		s.shows("the snapshot of "+what, w.snapshot(), tt.want...)
		w.cancel()
	}
	all := s.watch(&resourcepb.WatchListRequest{Type: thing}) // no tenancy means all
	s.shows("the snapshot of all tenancies", all.snapshot(), "a", "ab", "b", "c", "d", "e")
}

func listVersions(s *suite) {
	s.write(newThing("a", "content"))
	s.write(&resourcepb.Resource{Id: idOf(thing2, "b"), Data: binary("content")})
	for _, tt := range []struct {
		t    *resourcepb.Type
		want string
	}{{thing, "a"}, {thing2, "b"}} {
		answer, err := s.List(s.ctx, &resourcepb.ListRequest{Type: tt.t, Tenancy: anywhere})
		s.succeeds("List", err)
		s.shows("the list of "+tt.t.GetGroupVersion(), answer.GetResources(), tt.want)
		s.shows("the snapshot of "+tt.t.GetGroupVersion(), s.watch(&resourcepb.WatchListRequest{Type: tt.t}).snapshot(), tt.want)
	}
}

func listPages(s *suite) {
	if _, ok := storage.As[storage.Pager](s.store); !ok {
		s.refuse([]row{{"List with a limit", func(s *suite) error {
			return only(s.List(s.ctx, &resourcepb.ListRequest{Type: thing, Tenancy: anywhere, Limit: 1}))
		}, codes.Unimplemented, "limit"}})
		return
	}
	var want []string
	for i := range 7 {
		want = append(want, fmt.Sprintf("name-%d", i))
		s.write(newThing(want[i], "content"))
		s.write(&resourcepb.Resource{Id: idOf(thing2, fmt.Sprintf("other-%d", i)), Data: binary("content")}) // of another version, so not shown
	}
	for _, limit := range []int32{1, 3, 7, 100} {
		var got []*resourcepb.Resource
		req := &resourcepb.ListRequest{Type: thing, Tenancy: anywhere, Limit: limit}
		cursor := ""
		for {
			page, err := s.List(s.ctx, req)
			s.succeeds("List of a page", err)
			if len(page.GetResources()) > int(limit) {
				s.Fatalf("a page of %d has %d resources", limit, len(page.GetResources()))
			}
			got = append(got, page.GetResources()...)
			if cursor != "" && page.GetCursor() != cursor {
				s.Errorf("two pages of one listing have two cursors")
			}
			cursor = page.GetCursor()
			if page.GetContinue() == "" {
				break
			}
			req.Continue = page.GetContinue()
		}
		s.shows(fmt.Sprintf("pages of %d", limit), got, want...)
		if _, ok := storage.As[storage.Resumer](s.store); ok && cursor == "" {
			s.Error("a listing in pages has no cursor")
		}
	}
}

func listAuthorizers(s *suite) {
	for _, unit := range []string{"default", east} {
		for i := range 4 {
			s.write(in(unit, "default", newThing(fmt.Sprintf("name-%d", i), "content")))
			s.write(in("default", unit, newThing(fmt.Sprintf("more-%d", i), "content")))
		}
	}
	for what, call := range map[string]func() error{
		"List": func() error { return only(s.List(s.ctx, &resourcepb.ListRequest{Type: thing, Tenancy: anywhere})) },
		"the snapshot of WatchList": func() error {
			w := s.watch(&resourcepb.WatchListRequest{Type: thing})
			w.snapshot()
			return nil
		},
	} {
		s.world.calls()
		s.succeeds(what, call())
		times := map[string]int{}
		for _, entry := range s.world.calls() {
			if strings.HasPrefix(entry, "authenticate ") {
				times[entry]++
			}
		}
		for entry, n := range times {
			if n > 1 {
				s.Errorf("%s asks %d times to %s", what, n, entry)
			}
		}
		if len(times) == 0 {
			s.Errorf("%s does not authenticate", what)
		}
	}
}

func listAccess(s *suite) {
	for name, who := range map[string]string{"a": "reader", "b": "", "c": "other reader", "d": "other"} {
		s.write(with(newOf(secret, name), readableBy, who))
	}
	for who, want := range map[string][]string{"": {"a", "b", "c", "d"}, reader: {"a", "c"}, "other": {"c", "d"}, "third": nil} {
		answer, err := s.List(s.as(who), &resourcepb.ListRequest{Type: secret, Tenancy: anywhere})
		s.succeeds("List", err)
		s.shows("the list of "+who, answer.GetResources(), want...)
		w := s.watchAs(s.as(who), &resourcepb.WatchListRequest{Type: secret})
		s.shows("the snapshot of "+who, w.snapshot(), want...)
	}
}
