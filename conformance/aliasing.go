package conformance

import (
	"errors"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var aliasingCases = topic{"Aliasing", []testCase{
	{name: "InputIsNotChanged", run: aliasingInputUnchanged},
	{name: "InputIsNotKept", run: aliasingInputKept},
	{name: "ResultsAreTheCallers", run: aliasingResults},
	{name: "EventsAreTheCallers", run: aliasingEvents},
}}

// scribble changes everything in a resource that a caller could reach.
func scribble(res *resourcepb.Resource) {
	if res == nil {
		return
	}
	scribbleID(res.Id)
	scribbleID(res.Owner)
	res.Version, res.Generation = "scribbled", "scribbled"
	for k := range res.Metadata {
		res.Metadata[k] = "scribbled"
	}
	for _, status := range res.Status {
		status.ObservedGeneration = "scribbled"
		for _, c := range status.Conditions {
			c.Message = "scribbled"
		}
	}
	if res.Data != nil {
		res.Data.TypeUrl = "scribbled"
		clear(res.Data.Value)
	}
}

func scribbleID(id *resourcepb.ID) {
	if id == nil {
		return
	}
	id.Uid, id.Name = "scribbled", "scribbled"
	id.Type.Group, id.Type.Kind, id.Type.GroupVersion = "scribbled", "scribbled", "scribbled"
	id.Tenancy.Partition, id.Tenancy.Namespace = "scribbled", "scribbled"
}

func aliasingInputUnchanged(s *suite) {
	res := rich("a")
	before := clone(res)
	stored := s.write(res)
	s.same("the argument of WriteCAS", res, before)
	before = clone(stored)
	_, err := s.b.WriteCAS(s.ctx, stored)
	s.succeeds("WriteCAS", err)
	s.same("the argument of WriteCAS", stored, before)
	_, err = s.b.WriteCAS(s.ctx, stored)
	s.fails("WriteCAS", err, storage.ErrCASFailure)
	s.same("the argument of a WriteCAS that fails", stored, before)

	id, tenancy := clone(stored.Id), clone(anywhere)
	for _, call := range allCalls(s, stored, s.watch(anything, anywhere, "").Cursor()) {
		_ = call(s.ctx) // whatever comes of it
		s.same("an id given", stored.Id, id)
		s.same("a tenancy given", anywhere, tenancy)
	}
	if transactor, ok := storage.As[storage.Transactor](s.b); ok {
		write, del := rich("b"), thingID("c")
		ops := []storage.Op{{Write: write}, {Delete: del, Version: "v"}, {Check: withUid(thingID("d"), "")}}
		wantWrite, wantDelete := clone(write), clone(del)
		_, err := transactor.Commit(s.ctx, ops)
		s.succeeds("Commit", err)
		if ops[0].Write != write || ops[1].Delete != del || ops[1].Version != "v" {
			s.Fatal("Commit changed the operations that it was given")
		}
		s.same("a resource given to Commit", write, wantWrite)
		s.same("an id given to Commit", del, wantDelete)
	}
}

func aliasingInputKept(s *suite) {
	tenancy := clone(home)
	w := s.watch(things, tenancy, "")
	s.snapshot(w)
	tenancy.Namespace = "scribbled"

	input := rich("a")
	want := clone(input)
	want.Version = s.write(input).Version
	scribble(input)
	s.stored(want)
	s.sameList("List", s.list(things, home, ""), []*resourcepb.Resource{want})
	s.owns(want.Owner, want.Id)
	s.upsert(w, want)
	if _, ok := storage.As[storage.Transactor](s.b); ok {
		input := rich("b")
		input.Owner = nil
		want := clone(input)
		want.Version = s.commit(storage.Op{Write: input})[0].Version
		scribble(input)
		s.stored(want)
		s.upsert(w, want)
	}
	s.delete(want)
	s.deletion(w, want)
}

func aliasingResults(s *suite) {
	first := s.watchAll()
	result := s.write(rich("a"))
	want := clone(result)
	scribble(result)
	s.upsert(first, want)
	check := func(what string) {
		s.Helper()
		for range 2 {
			for _, consistency := range consistencies {
				got, err := s.b.Read(s.ctx, consistency, want.Id)
				s.succeeds("Read", err)
				s.same("Read after scribbling on "+what, got, want)
				scribble(got)
				list, err := s.b.List(s.ctx, consistency, things, home, "")
				s.succeeds("List", err)
				s.sameList("List after scribbling on "+what, list, []*resourcepb.Resource{want})
				scribble(list[0])
			}
		}
		w := s.watch(things, home, "")
		got := s.snapshot(w)
		w.Close()
		s.sameList("the snapshot of a watch after scribbling on "+what, got, []*resourcepb.Resource{want})
		scribble(got[0])
		refs, err := s.b.OwnerReferences(s.ctx, want.Owner)
		s.succeeds("OwnerReferences", err)
		s.succeeds("OwnerReferences after scribbling on "+what, compareIDs(refs, []*resourcepb.ID{want.Id}))
		scribbleID(refs[0])
		if pager, ok := storage.As[storage.Pager](s.b); ok {
			page, _ := s.pages(pager, atHome, 1)
			s.sameList("pages after scribbling on "+what, page, []*resourcepb.Resource{want})
			scribble(page[0])
		}
	}
	check("the result of WriteCAS")
	check("all results")
	_, err := s.b.Read(s.ctx, strong, under(want.Id, "v99"))
	var m storage.GroupVersionMismatchError
	if errors.As(err, &m) {
		scribble(m.Stored)
	}
	check("the resource in a GroupVersionMismatchError")
	if _, ok := storage.As[storage.Transactor](s.b); ok {
		result := s.commit(storage.Op{Write: changed(want)})[0]
		want = clone(result)
		scribble(result)
		s.upsert(first, want)
		check("the result of Commit")
	}
	s.delete(want)
	s.deletion(first, want)
}

// aliasingEvents scribbles on every event of one watch: another one, a later one and the store do not notice.
func aliasingEvents(s *suite) {
	one, two := s.watchAll(), s.watchAll()
	res := s.write(rich("a"))
	events := []*resourcepb.WatchEvent{upserted(res)}
	for range 3 {
		res = s.update(res)
		events = append(events, upserted(res))
	}
	s.delete(res)
	events = append(events, deleted(res))
	start := two.Cursor()
	for _, want := range events {
		got := s.next(one)
		s.same("the first watch", got, want)
		kept := proto.CloneOf(got)
		scribble(subject(got))
		got = s.next(two)
		s.same("the second watch", got, kept)
		scribble(subject(got))
	}
	if start != "" {
		resumed := s.resume(start, everywhere)
		for _, want := range events {
			s.event(resumed, want)
		}
	}
}
