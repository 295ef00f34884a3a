package servicetest

import (
	"fmt"
	"sync"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

var watchCases = topic{"Watch", []testCase{
	{name: "SnapshotThenChanges", rules: []int{18}, run: watchChanges},
	{name: "EveryVersionUnderLoad", rules: []int{18}, run: watchLoad},
	{name: "ReadableAtOnce", rules: []int{19}, run: watchReadable},
	{name: "Restored", rules: []int{22}, run: watchRestored},
	{name: "Cursors", rules: []int{18}, run: watchCursors},
	{name: "Before", rules: []int{18}, run: watchBefore},
	{name: "Bookmarks", rules: []int{18}, run: watchBookmarks},
}}

func watchChanges(s *suite) {
	empty := s.watch(&resourcepb.WatchListRequest{Type: secret})
	s.shows("the empty snapshot", empty.snapshot())
	a, b := s.write(newThing("a", "content")), s.write(newThing("b", "content"))
	s.write(newOf(site, "other"))
	w := s.watch(&resourcepb.WatchListRequest{Type: thing})
	if err := difference(w.snapshot(), []*resourcepb.Resource{a, b}); err != nil {
		s.Fatalf("the snapshot: %v", err)
	}
	for range 3 {
		a = s.write(newThing("a", "newer"))
		s.same("the event of an update", w.upsert("a"), a)
	}
	s.write(newOf(site, "other"))
	a = s.writeStatus(statusOf(a, "key", "message"))
	s.same("the event of a status", w.upsert("a"), a)
	s.delete(a.GetId())
	s.same("the event of a deletion", w.deleted("a"), a)
	s.delete(a.GetId()) // already deleted
	a = s.write(newThing("a", "again"))
	s.same("the event of a creation", w.upsert("a"), a)
	s.delete(b.GetId())
	s.same("the event of another deletion", w.deleted("b"), b)
}

// watchLoad runs writers on a few resources while streams are open and are opened.
func watchLoad(s *suite) {
	const keys = 4
	rounds := s.scale(24)
	journal := make([][]string, keys) // the versions of each key, in order; "" is a deletion
	first := s.watch(&resourcepb.WatchListRequest{Type: thing})
	first.snapshot()
	late := make(chan *watching, 1)
	var group sync.WaitGroup
	group.Go(func() {
		defer close(late)
		late <- s.watch(&resourcepb.WatchListRequest{Type: thing})
	})
	s.parallel(keys, func(i int) error {
		for n := range rounds {
			res, err := s.Write(s.ctx, &resourcepb.WriteRequest{Resource: newThing(keyNamed(i), fmt.Sprint(n))})
			if err != nil {
				return err
			}
			journal[i] = append(journal[i], res.GetResource().GetVersion())
			if n%6 == 3 {
				if _, err := s.Delete(s.ctx, &resourcepb.DeleteRequest{Id: res.GetResource().GetId()}); err != nil {
					return err
				}
				journal[i] = append(journal[i], "")
			}
		}
		_, err := s.Write(s.ctx, &resourcepb.WriteRequest{Resource: newThing(keyNamed(i), last)})
		return err
	})
	group.Wait()
	s.follows("the stream opened first", first, journal, true)
	if w := <-late; w != nil {
		s.follows("the stream opened in between", w, journal, false)
	}
}

// last is the final content of a key.
const last = "last"

func keyNamed(i int) string { return fmt.Sprintf("key-%d", i) }

// follows checks that a stream shows the versions of each key in order, up to the last: all of them, or those after its snapshot.
func (s *suite) follows(what string, w *watching, journal [][]string, all bool) {
	s.Helper()
	rest, begun := map[string][]string{}, map[string]bool{}
	for i, versions := range journal {
		rest[keyNamed(i)], begun[keyNamed(i)] = versions, all
	}
	for ends := 0; len(rest) > 0 || ends == 0 && !all; {
		ev := w.next()
		res := ev.GetUpsert().GetResource()
		switch {
		case ev.GetEndOfSnapshot() != nil:
			if ends++; ends > 1 || all {
				s.Fatalf("%s: a second end of the snapshot", what)
			}
			continue
		case ev.GetDelete() != nil:
			res = but(ev.GetDelete().GetResource(), func(r *resourcepb.Resource) { r.Version = "" })
		}
		name := res.GetId().GetName()
		versions, ok := rest[name]
		if !begun[name] { // versions before the snapshot are not shown
			begun[name] = true
			for len(versions) > 0 && versions[0] != res.GetVersion() {
				versions = versions[1:]
			}
		}
		switch {
		case ok && len(versions) > 0 && versions[0] == res.GetVersion():
			rest[name] = versions[1:]
		case ok && len(versions) == 0 && stringOf(res) == last && ev.GetUpsert() != nil:
			delete(rest, name)
		default:
			s.Fatalf("%s: the next of %s should be the first of %q, and then the last one, and is %s", what, name, versions, text(ev))
		}
	}
}

// watchReadable reads each resource of an event from the same server.
func watchReadable(s *suite) {
	w := s.watch(&resourcepb.WatchListRequest{Type: thing})
	w.snapshot()
	other := s.client(s.server(&world{}, s.store)) // the first server sees its writes through events only
	for i := range s.scale(20) {
		answer, err := other.Write(s.ctx, &resourcepb.WriteRequest{Resource: newThing("a", fmt.Sprint(i))})
		s.succeeds("Write", err)
		event := w.upsert("a")
		s.same("the event", event, answer.GetResource())
		s.same("Read after the event", s.read(idOf(thing, "a")), event)
		list, err := s.List(s.ctx, &resourcepb.ListRequest{Type: thing, Tenancy: anywhere})
		s.succeeds("List", err)
		if err := difference(list.GetResources(), []*resourcepb.Resource{event}); err != nil {
			s.Fatalf("List after the event: %v", err)
		}
	}
	_, err := other.Delete(s.ctx, &resourcepb.DeleteRequest{Id: idOf(thing, "a")})
	s.succeeds("Delete", err)
	w.deleted("a")
	s.fails("Read after the deletion's event", only(s.Read(s.ctx, &resourcepb.ReadRequest{Id: idOf(thing, "a")})), codes.NotFound,
		exactly(notFound))
}

// watchRestored restores an earlier state of the store, which ends streams.
func watchRestored(s *suite) {
	if s.h.Backup == nil {
		return // the service reports every reason for which a backend ends a watch in the same way
	}
	s.write(newThing("a", "content"))
	w := s.watch(&resourcepb.WatchListRequest{Type: thing})
	w.snapshot()
	s.h.Backup(s.TB, s.store)()
	w.ends("a stream of a store that was restored", codes.Aborted)
}

func watchCursors(s *suite) {
	if _, ok := storage.As[storage.Resumer](s.store); !ok {
		s.fails("WatchList with a cursor", s.watched(s.ctx, &resourcepb.WatchListRequest{Type: thing, Cursor: "1"}), codes.Unimplemented, ".")
		return
	}
	s.write(newThing("a", "content"))
	w := s.watch(&resourcepb.WatchListRequest{Type: thing, Cursors: true})
	if ev := w.next(); ev.GetUpsert() == nil || ev.GetCursor() != "" {
		s.Fatalf("the first event of the snapshot is %s", text(ev))
	}
	end := w.next()
	if end.GetEndOfSnapshot() == nil || end.GetCursor() == "" {
		s.Fatalf("the end of the snapshot is %s", text(end))
	}
	var events []*resourcepb.WatchEvent
	take := func() { events = append(events, w.next()) }
	s.write(newThing("a", "newer"))
	take()
	s.write(newThing("b", "content"))
	take()
	s.delete(idOf(thing, "a"))
	take()
	cursors := []string{end.GetCursor()}
	for _, ev := range events {
		cursors = append(cursors, ev.GetCursor())
	}
	flush := s.write(newThing("flush", "content"))
	for i, cursor := range cursors {
		again := s.watch(&resourcepb.WatchListRequest{Type: thing, Cursor: cursor, Cursors: true})
		for _, want := range events[i:] {
			s.same(fmt.Sprintf("an event after cursor %d", i), bare(again.next()), bare(want))
		}
		s.same("the last event after a cursor", again.upsert("flush"), flush)
		again.cancel()
	}
	stranger := s.h.open(s.TB)
	defer stranger.Close()
	s.Client = s.client(s.server(s.world, stranger))
	s.fails("WatchList with another store's cursor", s.watched(s.ctx, &resourcepb.WatchListRequest{Type: thing, Cursor: cursors[0]}),
		codes.OutOfRange, ".")
}

// bare returns an event without its position, which may differ between streams.
func bare(ev *resourcepb.WatchEvent) *resourcepb.WatchEvent {
	return but(ev, func(ev *resourcepb.WatchEvent) { ev.Cursor = "" })
}

func watchBefore(s *suite) {
	probe, err := s.store.WatchList(s.ctx, everything, anywhere, "")
	s.succeeds("watch the store", err)
	_, ok := probe.(history.Recaller)
	probe.Close()
	if !ok {
		s.fails("WatchList with the state before", s.watched(s.ctx, &resourcepb.WatchListRequest{Type: thing, Before: true}),
			codes.Unimplemented, ".")
		return
	}
	w := s.watch(&resourcepb.WatchListRequest{Type: thing, Before: true})
	w.snapshot()
	var before *resourcepb.Resource
	for _, content := range []string{"one", "two"} {
		now := s.write(newThing("a", content))
		ev := w.next()
		s.same("the event", ev.GetUpsert().GetResource(), now)
		if !proto.Equal(ev.GetBefore(), before) {
			s.Errorf("the state before %s is %s, expected %s", content, text(before), text(ev.GetBefore()))
		}
		before = now
	}
	s.delete(before.GetId())
	s.same("the state before a deletion", w.next().GetBefore(), before)
}

func watchBookmarks(s *suite) {
	probe, err := s.store.WatchList(s.ctx, everything, anywhere, "")
	s.succeeds("watch the store", err)
	_, ok := probe.(storage.Bookmarker)
	probe.Close()
	req := &resourcepb.WatchListRequest{Type: thing, BookmarkInterval: seconds(1), Cursors: true}
	if !ok {
		s.fails("WatchList with bookmarks", s.watched(s.ctx, req), codes.Unimplemented, ".")
		return
	}
	w := s.watch(req)
	w.snapshot()
	for range 2 { // on an idle stream
		if ev := w.next(); ev.GetBookmark() == nil || ev.GetBookmark().GetCursor() == "" {
			s.Fatalf("the next event should be a bookmark, and is %s", text(ev))
		}
	}
	want := s.write(newThing("a", "content"))
	ev := w.next()
	for ev.GetBookmark() != nil { // requested before
		ev = w.next()
	}
	s.same("the event between bookmarks", ev.GetUpsert().GetResource(), want)
}
