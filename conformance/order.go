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
	{name: "EveryVersionOfHotKeys", run: orderHotKeys},
	{name: "AcrossKeys", needs: needOrder, run: orderAcrossKeys},
	{name: "SecondHandle", needs: needAnother, run: orderSecondHandle},
	{name: "Filters", run: orderFilters},
}}

func orderLifetimes(s *suite) {
	w := s.watchAll()
	for i := range s.scale(12) {
		res := s.create("a")
		s.upsert(w, res)
		for range i % 4 {
			res = s.update(res)
			s.upsert(w, res)
		}
		s.delete(res)
		s.deletion(w, res)
	}
}

func orderDeleteCarries(s *suite) {
	w := s.watchAll()
	owner := thingID("owner")
	res := newChild("a", owner)
	res.Metadata = map[string]string{"k": "v"}
	res = s.write(res)
	next := changed(res)
	next.Owner, next.Generation = nil, "2"
	last := s.write(next)
	s.delete(last)

	gone := s.create("b")
	s.delete(gone)
	gone = s.create("b")
	s.delete(gone)
	s.upsert(w, res)
	s.upsert(w, last)
	s.deletion(w, last)
	// Long after other things happened, too: what a delete event shows is not looked up when it is read.
	first := s.next(w)
	s.deletion(w, subject(first))
	s.upsert(w, gone)
	s.deletion(w, gone)
}

// orderHotKeys has several writers fight for few keys: every version that a success returned is seen, in the order in which
// each replaced the one before.
func orderHotKeys(s *suite) {
	const keys, watchers = 3, 4
	handles := []storage.Backend{s.b}
	if s.h.OneHandle == "" {
		handles = append(handles, s.another())
	}
	watches := make([]storage.Watch, watchers)
	for i := range watches {
		w, err := handles[i%len(handles)].WatchList(s.ctx, anything, anywhere, "")
		watches[i] = s.opened(w, err)
		s.snapshot(w)
	}
	j := newJournal()
	var ids []*resourcepb.ID
	for i := range keys {
		res := s.create(fmt.Sprintf("hot-%d", i))
		j.wrote("", res)
		ids = append(ids, res.Id)
	}
	s.parallel(4, func(worker int) error {
		for i := range s.scale(40) {
			if err := updateRetrying(s, handles[worker%len(handles)], ids[(i+worker)%keys], j); err != nil {
				return err
			}
		}
		return nil
	})
	s.succeeds("the writers", j.chain())
	s.parallel(watchers, func(i int) error {
		d, err := drain(s, watches[i], false, j.complete())
		if err != nil {
			return err
		}
		return j.check(d, nil, nil, s.h.MergesEvents != "")
	})
}

// bump changes a resource once, however often others are faster, and notes the success.
func updateRetrying(s *suite, b storage.Backend, id *resourcepb.ID, j *journal) error {
	for {
		res, err := b.Read(s.ctx, strong, id)
		if err != nil {
			return err
		}
		stored, err := b.WriteCAS(s.ctx, changed(res))
		if err == nil {
			j.wrote(res.Version, stored)
			return nil
		}
		if !errors.Is(err, storage.ErrCASFailure) {
			return err
		}
	}
}

// orderAcrossKeys demands one order of all changes, the same for every watch, and that of acknowledgement where one write
// was acknowledged before the next began.
func orderAcrossKeys(s *suite) {
	one, two, half := s.watchAll(), s.watchAll(), s.watch(things, home, "key-0-")
	s.snapshot(half)
	var want []*resourcepb.WatchEvent
	for i := range s.scale(40) {
		want = append(want, upserted(s.create(fmt.Sprintf("alone-%d", i*13%40))))
	}
	for _, ev := range want {
		s.event(one, ev)
		s.event(two, ev)
	}

	j := newJournal()
	s.succeeds("the writers", startLoad(s, j, 4, s.scale(40))())
	var all [3]*drained
	watches := []storage.Watch{one, two, half}
	s.parallel(2, func(i int) (err error) {
		all[i], err = drain(s, watches[i], false, j.complete())
		return err
	})
	for i, ev := range all[0].events {
		s.same("the same event in another watch", all[1].events[i], ev)
		if (filter{things, home, "key-0-"}).selects(subject(ev).Id) {
			s.event(half, ev)
		}
	}
}

func orderSecondHandle(s *suite) {
	writer, reader := s.b, s.another()
	w, err := reader.WatchList(s.ctx, anything, anywhere, "")
	s.opened(w, err)
	s.snapshot(w)
	local := s.watchAll()
	for i := range s.scale(16) {
		s.b = []storage.Backend{writer, reader}[i%2]
		res := s.create("a")
		next := s.update(res)
		s.delete(next)
		for _, w := range []storage.Watch{w, local} {
			s.upsert(w, res)
			s.upsert(w, next)
			s.deletion(w, next)
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
			s.Fatalf("the snapshot of a fresh store holds %s", text(got[0]))
		}
	}
	all := createMixture(s)
	var events []*resourcepb.WatchEvent
	for _, res := range all {
		events = append(events, upserted(res))
	}
	for i, res := range all {
		if i%3 == 0 {
			res = s.update(res)
			events = append(events, upserted(res))
		}
		if i%2 == 0 {
			s.delete(res)
			events = append(events, deleted(res))
		}
	}
	// At last each key once more, so that an event too many has to show before.
	for _, res := range all {
		events = append(events, upserted(s.write(nextResource(s, res))))
	}
	for i, f := range fs {
		var want []*resourcepb.WatchEvent
		for _, ev := range events {
			if f.selects(subject(ev).Id) {
				want = append(want, proto.CloneOf(ev))
			}
		}
		perKey(s, watches[i], want...)
	}
}

// following is what to write to a key whatever is stored there now.
func nextResource(s *suite, res *resourcepb.Resource) *resourcepb.Resource {
	s.Helper()
	stored, err := s.b.Read(s.ctx, strong, withUid(res.Id, ""))
	if errors.Is(err, storage.ErrNotFound) {
		return newResource(withUid(res.Id, newUid()))
	}
	s.succeeds("Read", err)
	return changed(stored)
}
