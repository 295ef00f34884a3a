package servicetest

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// everyType is the name of all registered types.
var everyType = &resourcepb.Type{Group: "*", GroupVersion: "*", Kind: "*"}

// historyAsItWas records the lists at each revision, and reads them again later.
func historyAsItWas(s *suite) {
	if _, ok := s.historian(); !ok {
		return
	}
	type state struct {
		revision int64
		listed   []*resourcepb.Resource
	}
	var states []state
	note := func() {
		answer, err := s.List(consistently(s.ctx), &resourcepb.ListRequest{Type: thing, Tenancy: anywhere})
		s.succeeds("List", err)
		states = append(states, state{s.newest(), answer.GetResources()})
	}
	note()
	for i, name := range []string{"a", "b", "ab", "c"} {
		s.write(newThing(name, fmt.Sprint(i)))
		note()
	}
	s.write(newThing("a", "again"))
	note()
	s.delete(idOf(thing, "b"))
	note()
	s.write(in("", east, newThing("b", "elsewhere")))
	s.write(newThing("b", "born again"))
	s.write(&resourcepb.Resource{Id: idOf(thing2, "c"), Data: binary("moved")})
	note()
	for _, st := range states {
		for _, limit := range []int32{0, 1, 2, 3, 100} {
			records := s.listAt(s.ctx, &resourcepb.ListAtRequest{Type: thing, Tenancy: anywhere, Revision: st.revision, Limit: limit})
			what := fmt.Sprintf("the past at revision %d in pages of %d", st.revision, limit)
			got := make([]*resourcepb.Resource, len(records))
			for i, r := range records {
				got[i] = r.GetResource()
				if r.GetCreated() < 1 || r.GetModified() < r.GetCreated() || r.GetModified() > st.revision || r.GetWrites() < 1 ||
					(r.GetWrites() == 1) != (r.GetCreated() == r.GetModified()) {
					s.Errorf("%s: the numbers are wrong: %s", what, text(r))
				}
			}
			if err := difference(got, st.listed); err != nil {
				s.Errorf("%s: %v", what, err)
			}
		}
	}
	last := states[len(states)-1].revision
	for _, tt := range []struct {
		typ       *resourcepb.Type
		namespace string
		prefix    string
		want      []string
	}{
		{thing, "default", "", []string{"a", "ab", "b"}},
		{thing, "", "", []string{"a", "ab", "b"}},
		{thing, east, "", []string{"b"}},
		{thing, "*", "a", []string{"a", "ab"}},
		{thing2, "*", "", []string{"c"}},
		{but(thing, func(t *resourcepb.Type) { t.GroupVersion = "*" }), "default", "", []string{"a", "ab", "b", "c"}},
	} {
		req := &resourcepb.ListAtRequest{
			Type: tt.typ, Tenancy: &resourcepb.Tenancy{Partition: "default", Namespace: tt.namespace}, NamePrefix: tt.prefix, Revision: last,
		}
		s.showsRecords("the past of "+text(req), s.listAt(s.ctx, req), tt.want...)
	}
}

// historyChanges reads the changes of one resource, and of all.
func historyChanges(s *suite) {
	if _, ok := s.historian(); !ok {
		return
	}
	first := s.newest()
	a1 := s.write(newThing("a", "one"))
	s.write(newThing("ab", "one"))
	a2 := s.write(newThing("a", "two"))
	s.write(newOf(secret, "a")) // so that a list of things does not show the middle revision
	middle := s.newest()
	s.delete(a2.GetId())
	a3 := s.write(newThing("a", "three"))
	req := &resourcepb.ChangesRequest{Type: thing, Tenancy: &resourcepb.Tenancy{}, Name: "a", After: first}
	got, err := s.changes(s.ctx, req)
	s.succeeds("Changes", err)
	want := []struct{ before, now *resourcepb.Resource }{{nil, a1}, {a1, a2}, {a2, nil}, {nil, a3}}
	if len(got) != len(want) {
		s.Fatalf("Changes of a shows %d changes, expected %d: %v", len(got), len(want), got)
	}
	for i, w := range want {
		what := fmt.Sprintf("change %d of %d", i+1, len(want))
		s.same(what+", the state before", got[i].GetBefore().GetResource(), w.before)
		s.same(what+", the state now", got[i].GetNow().GetResource(), w.now)
		if got[i].GetMore() {
			s.Errorf("%s: more is set, but the next change belongs to another commit", what)
		}
		if w.now != nil && got[i].GetNow().GetModified() != got[i].GetRevision() {
			s.Errorf("%s has revision %d, expected %d", what, got[i].GetRevision(), got[i].GetNow().GetModified())
		}
		if i > 0 && got[i].GetRevision() <= got[i-1].GetRevision() {
			s.Errorf("%s has revision %d, and the previous one %d", what, got[i].GetRevision(), got[i-1].GetRevision())
		}
	}
	for what, tt := range map[string]struct {
		change func(*resourcepb.ChangesRequest)
		want   int
	}{
		"up to the middle":   {func(q *resourcepb.ChangesRequest) { q.Until = middle }, 2},
		"from the middle on": {func(q *resourcepb.ChangesRequest) { q.After = middle }, 2},
		"of an empty range":  {func(q *resourcepb.ChangesRequest) { q.After, q.Until = middle, middle }, 0},
		"of every name":      {func(q *resourcepb.ChangesRequest) { q.Name = "" }, 5},
		"of another name":    {func(q *resourcepb.ChangesRequest) { q.Name = "abc" }, 0},
		"of another type":    {func(q *resourcepb.ChangesRequest) { q.Type = secret }, 1},
		"of all namespaces":  {func(q *resourcepb.ChangesRequest) { q.Tenancy = anywhere }, 4},
		"of another one":     {func(q *resourcepb.ChangesRequest) { q.Tenancy = &resourcepb.Tenancy{Namespace: east} }, 0},
		"of another one, in all partitions": {func(q *resourcepb.ChangesRequest) {
			q.Tenancy = &resourcepb.Tenancy{Partition: "*", Namespace: east}
		}, 0},
	} {
		got, err := s.changes(s.ctx, but(req, tt.change))
		s.succeeds("Changes "+what, err)
		if len(got) != tt.want {
			s.Errorf("Changes %s shows %d changes, expected %d: %v", what, len(got), tt.want, got)
		}
	}
	// A deletion and its tombstone are one commit for callers that see both.
	all, err := s.changes(s.ctx, &resourcepb.ChangesRequest{Type: everyType, Tenancy: anywhere, After: middle})
	s.succeeds("Changes of everything", err)
	if _, ok := storage.As[storage.Transactor](s.store); ok && (len(all) != 3 || !all[0].GetMore() || all[1].GetMore() || all[2].GetMore()) {
		s.Errorf("Changes returned %v, expected a deletion and its tombstone as one commit, and a write", all)
	}
}

// historyConcurrentChanges reads the changes of concurrent writes, which a database may commit together, in two parts that meet at each of their
// revisions.
func historyConcurrentChanges(s *suite) {
	if _, ok := s.historian(); !ok {
		return
	}
	const writes = 16
	first, errs := s.newest(), make([]error, writes)
	var writers sync.WaitGroup
	for i := range writes {
		writers.Go(func() {
			_, errs[i] = s.Write(s.ctx, &resourcepb.WriteRequest{Resource: newThing(fmt.Sprint("concurrent-", i), "")})
		})
	}
	writers.Wait()
	s.succeeds("concurrent writes", errors.Join(errs...))
	revisionsOf := func(after, until int64) (revisions []int64) {
		changes, err := s.changes(s.ctx, &resourcepb.ChangesRequest{Type: thing, Tenancy: anywhere, After: after, Until: until})
		s.succeeds("Changes", err)
		for _, c := range changes {
			revisions = append(revisions, c.GetRevision())
		}
		return revisions
	}
	all := revisionsOf(first, 0)
	if len(all) != writes {
		s.Fatalf("%d writes are %d changes, of the revisions %v", writes, len(all), all)
	}
	for _, middle := range all {
		before, after := revisionsOf(first, middle), revisionsOf(middle, 0)
		if last := before[len(before)-1]; last != middle || !slices.Equal(slices.Concat(before, after), all) {
			s.Fatalf("up to revision %d the changes have the revisions %v, and then %v", middle, before, after)
		}
	}
}

// historyAccess has resources that some callers may not read. Counts, tokens and ends must not disclose them.
func historyAccess(s *suite) {
	if _, ok := s.historian(); !ok {
		return
	}
	first := s.newest()
	for _, name := range []string{"a", "b-hidden", "c", "d-hidden", "e-hidden", "f", "g-hidden", "h-hidden"} {
		who := "other"
		if len(name) == 1 {
			who = "other " + reader
		}
		s.write(with(newOf(secret, name), readableBy, who))
	}
	ghost := in("default", "default", newOf(unregistered, "a"))
	ghost.Id.Uid = stale
	_, err := s.store.WriteCAS(s.ctx, ghost)
	s.succeeds("store a resource of an unregistered type", err)
	s.delete(idOf(secret, "h-hidden"))
	then := s.newest()
	for _, name := range []string{"a", "c", "f"} {
		s.delete(idOf(secret, name))
	}
	for _, tt := range []struct {
		who  string
		want []string
	}{
		{reader, []string{"a", "c", "f"}},
		{"third", nil},
		{"other", []string{"a", "b-hidden", "c", "d-hidden", "e-hidden", "f", "g-hidden"}},
	} {
		for _, limit := range []int32{0, 1, 2, 3, 4} {
			req := &resourcepb.ListAtRequest{Type: secret, Tenancy: anywhere, Revision: then, Limit: limit}
			s.showsRecords(fmt.Sprintf("the past of %s in pages of %d", tt.who, limit), s.listAt(s.as(tt.who), req), tt.want...)
		}
		got, err := s.changes(s.as(tt.who), &resourcepb.ChangesRequest{Type: secret, Tenancy: anywhere, After: first, Until: then})
		s.succeeds("Changes", err)
		var names []string
		for _, c := range got {
			if c.GetNow() != nil {
				names = append(names, c.GetNow().GetResource().GetId().GetName())
			}
		}
		want := tt.want
		if tt.who == "other" {
			want = append(want, "h-hidden")
		}
		if fmt.Sprint(names) != fmt.Sprint(want) {
			s.Errorf("Changes for the caller %s returned %v, expected %v", tt.who, names, want)
		}
	}
	for _, r := range s.listAt(s.as(reader), &resourcepb.ListAtRequest{Type: everyType, Tenancy: anywhere, Revision: then}) {
		if r.GetResource().GetId().GetType().GetKind() == unregistered.GetKind() {
			s.Errorf("a resource of an unregistered type is shown: %s", text(r))
		}
	}
}

// historyLeaving moves a resource out of a caller's view, and back.
func historyLeaving(s *suite) {
	if _, ok := s.historian(); !ok {
		return
	}
	first := s.newest()
	set := func(who string) *resourcepb.Resource { return s.write(with(newOf(secret, "a"), readableBy, who)) }
	set("other")
	seen := set(reader)
	set("other")
	set("other still")
	again := set(reader)
	set("other")
	s.delete(again.GetId())
	got, err := s.changes(s.as(reader), &resourcepb.ChangesRequest{Type: secret, Tenancy: anywhere, After: first})
	s.succeeds("Changes", err)
	want := []struct{ before, now *resourcepb.Resource }{{nil, seen}, {seen, nil}, {nil, again}, {again, nil}}
	if len(got) != len(want) {
		s.Fatalf("Changes shows %d changes, expected %d: %v", len(got), len(want), got)
	}
	for i, w := range want {
		s.same(fmt.Sprintf("the state before change %d", i+1), got[i].GetBefore().GetResource(), w.before)
		s.same(fmt.Sprintf("the state after change %d", i+1), got[i].GetNow().GetResource(), w.now)
	}
}
