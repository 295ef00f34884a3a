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

// mutate changes everything in a resource that a caller can reach.
func mutate(res *resourcepb.Resource) {
	if res == nil {
		return
	}
	mutateID(res.Id)
	mutateID(res.Owner)
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
	if res.Ttl != nil {
		res.Ttl.Seconds = 1
	}
	if res.Data != nil {
		res.Data.TypeUrl = "scribbled"
		clear(res.Data.Value)
	}
}

func mutateID(id *resourcepb.ID) {
	if id == nil {
		return
	}
	id.Uid, id.Name = "scribbled", "scribbled"
	id.Type.Group, id.Type.Kind, id.Type.GroupVersion = "scribbled", "scribbled", "scribbled"
	id.Tenancy.Partition, id.Tenancy.Namespace = "scribbled", "scribbled"
}

func aliasingInputUnchanged(s *suite) {
	res := newRichThing("a")
	before := clone(res)
	stored := s.write(res)
	s.equal("the argument of WriteCAS", res, before)
	before = clone(stored)
	_, err := s.b.WriteCAS(s.ctx, stored)
	s.noError("WriteCAS", err)
	s.equal("the argument of WriteCAS", stored, before)
	_, err = s.b.WriteCAS(s.ctx, stored)
	s.wantError("WriteCAS", err, storage.ErrCASFailure)
	s.equal("the argument of a WriteCAS that fails", stored, before)

	id, tenancy := clone(stored.Id), clone(anywhere)
	for _, call := range allCalls(s, stored, s.watch(anything, anywhere, "").Cursor()) {
		_ = call(s.ctx) // whatever comes of it
		s.equal("an id given", stored.Id, id)
		s.equal("a tenancy given", anywhere, tenancy)
	}
	if transactor, ok := storage.As[storage.Transactor](s.b); ok {
		write, del := newRichThing("b"), thingID("c")
		ops := []storage.Op{{Write: write}, {Delete: del, Version: "v"}, {Check: withUid(thingID("d"), "")}}
		wantWrite, wantDelete := clone(write), clone(del)
		_, err := transactor.Commit(s.ctx, ops)
		s.noError("Commit", err)
		if ops[0].Write != write || ops[1].Delete != del || ops[1].Version != "v" {
			s.Fatal("Commit changed the operations that it was given")
		}
		s.equal("a resource given to Commit", write, wantWrite)
		s.equal("an id given to Commit", del, wantDelete)
	}
}

func aliasingInputKept(s *suite) {
	tenancy := clone(home)
	w := s.watch(things, tenancy, "")
	s.snapshot(w)
	tenancy.Namespace = "scribbled"

	input := newRichThing("a")
	want := clone(input)
	want.Version = s.write(input).Version
	mutate(input)
	s.checkStored(want)
	s.equalLists("List", s.list(things, home, ""), []*resourcepb.Resource{want})
	s.checkOwned(want.Owner, want.Id)
	s.expectUpsert(w, want)
	if _, ok := storage.As[storage.Transactor](s.b); ok {
		input := newRichThing("b")
		input.Owner = nil
		want := clone(input)
		want.Version = s.commit(storage.Op{Write: input})[0].Version
		mutate(input)
		s.checkStored(want)
		s.expectUpsert(w, want)
	}
	s.delete(want)
	s.expectDelete(w, want)
}

func aliasingResults(s *suite) {
	first := s.watchAll()
	result := s.write(newRichThing("a"))
	want := clone(result)
	mutate(result)
	s.expectUpsert(first, want)
	check := func(what string) {
		s.Helper()
		for range 2 {
			for _, consistency := range consistencies {
				got, err := s.b.Read(s.ctx, consistency, want.Id)
				s.noError("Read", err)
				s.equal("Read after scribbling on "+what, got, want)
				mutate(got)
				list, err := s.b.List(s.ctx, consistency, things, home, "")
				s.noError("List", err)
				s.equalLists("List after scribbling on "+what, list, []*resourcepb.Resource{want})
				mutate(list[0])
			}
		}
		w := s.watch(things, home, "")
		got := s.snapshot(w)
		w.Close()
		s.equalLists("the snapshot of a watch after scribbling on "+what, got, []*resourcepb.Resource{want})
		mutate(got[0])
		refs, err := s.b.OwnerReferences(s.ctx, want.Owner)
		s.noError("OwnerReferences", err)
		s.noError("OwnerReferences after scribbling on "+what, compareIDs(refs, []*resourcepb.ID{want.Id}))
		mutateID(refs[0])
		if pager, ok := storage.As[storage.Pager](s.b); ok {
			page, _ := s.pages(pager, homeThings, 1)
			s.equalLists("pages after scribbling on "+what, page, []*resourcepb.Resource{want})
			mutate(page[0])
		}
	}
	check("the result of WriteCAS")
	check("all results")
	_, err := s.b.Read(s.ctx, strong, withGroupVersion(want.Id, "v99"))
	var m storage.GroupVersionMismatchError
	if errors.As(err, &m) {
		mutate(m.Stored)
	}
	check("the resource in a GroupVersionMismatchError")
	if _, ok := storage.As[storage.Transactor](s.b); ok {
		result := s.commit(storage.Op{Write: withNewData(want)})[0]
		want = clone(result)
		mutate(result)
		s.expectUpsert(first, want)
		check("the result of Commit")
	}
	s.delete(want)
	s.expectDelete(first, want)
}

// aliasingEvents mutates every event of one watch. Another watch, a later watch and the store are not affected.
func aliasingEvents(s *suite) {
	one, two := s.watchAll(), s.watchAll()
	res := s.write(newRichThing("a"))
	events := []*resourcepb.WatchEvent{upsertEvent(res)}
	for range 3 {
		res = s.update(res)
		events = append(events, upsertEvent(res))
	}
	s.delete(res)
	events = append(events, deleteEvent(res))
	start := two.Cursor()
	for _, want := range events {
		got := s.next(one)
		s.equal("the first watch", got, want)
		kept := proto.CloneOf(got)
		mutate(subject(got))
		got = s.next(two)
		s.equal("the second watch", got, kept)
		mutate(subject(got))
	}
	if start != "" {
		resumed := s.resume(start, allFilter)
		for _, want := range events {
			s.expectEvent(resumed, want)
		}
	}
}
