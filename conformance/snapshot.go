package conformance

import (
	"context"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var snapshotCases = topic{"Snapshot", []testCase{
	{name: "Empty", run: snapshotEmpty},
	{name: "TakenBeforeReturn", run: snapshotTakenBeforeReturn},
	{name: "ShowsWhatWasAcknowledged", run: snapshotAcknowledged},
	{name: "ReadSlowly", run: snapshotReadSlowly},
	{name: "Large", run: snapshotLarge},
	{name: "OutlivesContext", run: snapshotOutlivesContext},
}}

func snapshotEmpty(s *suite) {
	everything := s.watchAll()
	other := s.create("other")
	s.expectUpsert(everything, other)

	// The snapshot ends also if nothing matches, and resources outside of the filter never come.
	none := s.watch(things, home, "match")
	if got := s.snapshot(none); len(got) > 0 {
		s.Fatalf("the snapshot of a filter that nothing matches holds %s", shortText(got[0]))
	}
	other = s.update(other)
	match := s.create("match")
	s.expectUpsert(none, match)
	s.delete(other)
	s.expectUpsert(none, s.update(match))
}

// snapshotTakenBeforeReturn changes everything between WatchList and the first Next: the snapshot does not know about it.
func snapshotTakenBeforeReturn(s *suite) {
	a, b := s.create("a"), s.create("b")
	w := s.watch(things, home, "")
	a2 := s.update(a)
	s.delete(b)
	c := s.create("c")
	s.equalLists("the snapshot", s.snapshot(w), []*resourcepb.Resource{a, b})
	expectPerKey(s, w, upsertEvent(a2), deleteEvent(b), upsertEvent(c))
}

// snapshotAcknowledged opens a watch after each write: the snapshot holds everything acknowledged before.
func snapshotAcknowledged(s *suite) {
	handles := []storage.Backend{s.b}
	if s.h.OneHandle == "" {
		handles = append(handles, s.another())
	}
	var all []*resourcepb.Resource
	for i := range s.scale(20) {
		all = append(all, s.create(fmt.Sprintf("name-%02d", i)))
		if i > 0 {
			all[i-1] = s.update(all[i-1])
		}
		w, err := handles[i%len(handles)].WatchList(s.ctx, things, anywhere, "name-")
		s.equalLists("the snapshot", s.snapshot(s.mustOpen(w, err)), all)
		w.Close()
	}
}

// snapshotReadSlowly makes changes between any two resources of the snapshot.
func snapshotReadSlowly(s *suite) {
	all := createMany(s, s.scale(24))
	w := s.watch(things, home, "")
	late := make([]*resourcepb.Resource, len(all))
	var events []*resourcepb.WatchEvent
	for i, res := range all {
		s.expectUpsert(w, res)
		if late[i] != nil {
			res = late[i]
		}
		if i%2 == 0 {
			s.delete(res)
			events = append(events, deleteEvent(res))
		} else {
			events = append(events, upsertEvent(s.update(res)))
		}
		// One that the snapshot has yet to show, too: it must show it as it was.
		if ahead := len(all) - 1 - i; ahead > i {
			late[ahead] = s.update(all[ahead])
			events = append(events, upsertEvent(late[ahead]))
		}
	}
	if rest := s.snapshot(w); len(rest) > 0 {
		s.Fatalf("the snapshot continues with %s", shortText(rest[0]))
	}
	expectPerKey(s, w, events...)
}

// snapshotLarge makes changes to unread parts of a snapshot that is too large to be buffered.
func snapshotLarge(s *suite) {
	all := createLarge(s)
	w := s.watch(things, home, "")
	s.expectUpsert(w, all[0])
	events := changeTheEnd(s, all)
	s.equalLists("the rest of the snapshot", s.snapshot(w), all[1:])
	expectPerKey(s, w, events...)
}

// snapshotOutlivesContext ends the contexts of all calls that opened something.
func snapshotOutlivesContext(s *suite) {
	a := s.create("a")
	ctx, cancel := context.WithCancel(s.ctx)
	w, err := s.b.WatchList(ctx, things, home, "")
	s.mustOpen(w, err)
	cancel()
	s.equalLists("the snapshot", s.snapshot(w), []*resourcepb.Resource{a})
	for range s.scale(12) {
		a = s.update(a)
		s.expectUpsert(w, a)
	}
	resumer, ok := storage.As[storage.Resumer](s.b)
	if !ok {
		return
	}
	ctx, cancel = context.WithCancel(s.ctx)
	w, err = resumer.WatchFrom(ctx, things, home, "", w.Cursor())
	s.mustOpen(w, err)
	cancel()
	for range s.scale(12) {
		a = s.update(a)
		s.expectUpsert(w, a)
	}
}
