package conformance

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var orderCases = topic{"Order", []testCase{
	{name: "Lifetimes", run: orderLifetimes},
	{name: "DeleteCarriesTheLast", run: orderDeleteCarries},
	{name: "AcrossKeys", needs: needOrder, run: orderAcrossKeys},
	{name: "SecondHandle", needs: needAnother, run: orderSecondHandle},
	{name: "Filters", run: orderFilters},
}}

func orderLifetimes(s *suite) {
	w := s.watchAll()
	for i := range s.scale(12) {
		res := s.create("a")
		s.expectUpsert(w, res)
		for range i % 4 {
			res = s.update(res)
			s.expectUpsert(w, res)
		}
		s.delete(res)
		s.expectDelete(w, res)
	}
}

func orderDeleteCarries(s *suite) {
	w := s.watchAll()
	owner := thingID("owner")
	res := newChild("a", owner)
	res.Metadata = map[string]string{"k": "v"}
	res = s.write(res)
	next := withNewData(res)
	next.Owner, next.Generation = nil, "2"
	last := s.write(next)
	s.delete(last)

	gone := s.create("b")
	s.delete(gone)
	gone = s.create("b")
	s.delete(gone)
	s.expectUpsert(w, res)
	s.expectUpsert(w, last)
	s.expectDelete(w, last)
	// A delete event is complete also if it is read late: its content is not read from the store at that time.
	first := s.next(w)
	s.expectDelete(w, subject(first))
	s.expectUpsert(w, gone)
	s.expectDelete(w, gone)
}

// orderAcrossKeys demands one order of all changes for every watch. A write that was acknowledged before another began comes
// first.
func orderAcrossKeys(s *suite) {
	one, two, half := s.watchAll(), s.watchAll(), s.watch(things, home, "key-1")
	s.snapshot(half)
	for i := range s.scale(40) {
		want := upsertEvent(s.create(fmt.Sprintf("key-%d", i*13%40)))
		s.expectEvent(one, want)
		s.expectEvent(two, want)
		if (filter{things, home, "key-1"}).selects(subject(want).Id) {
			s.expectEvent(half, want)
		}
	}
}

func orderSecondHandle(s *suite) {
	writer, reader := s.b, s.another()
	w, err := reader.WatchList(s.ctx, anything, anywhere, "")
	s.mustOpen(w, err)
	s.snapshot(w)
	local := s.watchAll()
	for i := range s.scale(16) {
		s.b = []storage.Backend{writer, reader}[i%2]
		res := s.create("a")
		next := s.update(res)
		s.delete(next)
		for _, w := range []storage.Watch{w, local} {
			s.expectUpsert(w, res)
			s.expectUpsert(w, next)
			s.expectDelete(w, next)
		}
	}
}

// orderFilters watches an empty store with every filter, fills it, changes and deletes it: each watch sees its own part.
func orderFilters(s *suite) {
	fs := filters()
	watches := make([]storage.Watch, len(fs))
	for i, f := range fs {
		watches[i] = s.watch(f.typ, f.tenancy, f.prefix)
		if got := s.snapshot(watches[i]); len(got) > 0 {
			s.Fatalf("the snapshot of a fresh store holds %s", shortText(got[0]))
		}
	}
	all := createMixture(s)
	var events []*resourcepb.WatchEvent
	for _, res := range all {
		events = append(events, upsertEvent(res))
	}
	for i, res := range all {
		if i%3 == 0 {
			res = s.update(res)
			events = append(events, upsertEvent(res))
		}
		if i%2 == 0 {
			s.delete(res)
			events = append(events, deleteEvent(res))
		}
	}
	// The last event of each key, so that a superfluous event would come before it.
	for _, res := range all {
		events = append(events, upsertEvent(s.write(nextResource(s, res))))
	}
	for i, f := range fs {
		var want []*resourcepb.WatchEvent
		for _, ev := range events {
			if f.selects(subject(ev).Id) {
				want = append(want, proto.CloneOf(ev))
			}
		}
		expectPerKey(s, watches[i], want...)
	}
}

// nextResource returns a resource that can be written to a key in its present state.
func nextResource(s *suite, res *resourcepb.Resource) *resourcepb.Resource {
	s.Helper()
	stored, err := s.b.Read(s.ctx, strong, withUid(res.Id, ""))
	if errors.Is(err, storage.ErrNotFound) {
		return newResource(withUid(res.Id, newUid()))
	}
	s.noError("Read", err)
	return withNewData(stored)
}
