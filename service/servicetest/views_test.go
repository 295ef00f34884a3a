package servicetest

import (
	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var viewCases = topic{"Views", []testCase{
	{name: "LeavingByAccess", rules: []int{10, 20}, run: viewAccess},
	{name: "AfterACursor", rules: []int{10, 18}, run: viewCursor},
}}

// viewAccess moves a resource out of a caller's view, and back.
func viewAccess(s *suite) {
	w := s.watchAs(s.as(reader), &resourcepb.WatchListRequest{Type: secret})
	w.snapshot()
	set := func(name, who string) *resourcepb.Resource {
		return s.write(with(newOf(secret, name), readableBy, who))
	}
	never := set("never", "other")
	a := set("a", reader)
	s.same("the event of a visible resource", w.upsert("a"), a)
	set("a", "other")
	gone := w.deleted("a")
	if gone.GetId().GetUid() != a.GetId().GetUid() || gone.GetData() != nil || gone.GetMetadata()[readableBy] == "other" {
		s.Errorf("the deletion discloses hidden state: %s", text(gone))
	}
	set("a", "other")
	set("never", "other still")
	s.delete(a.GetId())     // already outside the caller's view
	s.delete(never.GetId()) // never was in the caller's view
	a = set("a", reader)
	s.same("the event of a resource that is visible again", w.upsert("a"), a)
	s.delete(a.GetId())
	s.same("the event of its deletion", w.deleted("a"), a)
	s.fails("the watch of nobody", s.watched(s.as(nobody), &resourcepb.WatchListRequest{Type: thing}), codes.PermissionDenied, ".")
}

// viewCursor resumes from a cursor, where the stream itself has sent nothing yet. It sends the end of a resource that an earlier stream
// sent, and no end of one that no stream sent.
func viewCursor(s *suite) {
	if _, ok := storage.As[storage.Resumer](s.store); !ok {
		return // Watch/Cursors tests it
	}
	w := s.watch(&resourcepb.WatchListRequest{Type: thing, Cursors: true})
	for w.next().GetEndOfSnapshot() == nil {
	}
	s.write(newThing("a", "content"))
	cursor := w.next().GetCursor()
	s.write(&resourcepb.Resource{Id: idOf(thing2, "b"), Data: binary("never seen")})
	s.write(&resourcepb.Resource{Id: idOf(thing2, "a"), Data: binary("moved")})
	flush := s.write(newThing("flush", "content"))
	again := s.watch(&resourcepb.WatchListRequest{Type: thing, Cursor: cursor, Cursors: true})
	ev, err := again.receive()
	if err != nil {
		// Without history the server cannot decide: the client must start over.
		s.fails("a stream after a cursor", err, codes.OutOfRange, "history")
		return
	}
	if ev.GetDelete().GetResource().GetId().GetName() != "a" {
		s.Fatalf("the first event after the cursor should be the deletion of a, and is %s", text(ev))
	}
	s.same("the next event", again.upsert("flush"), flush)
}
