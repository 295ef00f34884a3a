package servicetest

import (
	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage/resourcepb"
)

var identityCases = topic{"Identity", []testCase{
	{name: "UidAndOwnerStay", rules: []int{5}, run: identityStays},
	{name: "Generation", rules: []int{6}, run: identityGeneration},
	{name: "StaleUid", rules: []int{9}, run: identityStale},
	{name: "GroupVersion", rules: []int{10}, run: identityVersion},
}}

func identityStays(s *suite) {
	owner := s.write(newThing("owner", "content"))
	first := s.write(owned(newThing("a", "content"), owner))
	for _, step := range []func() *resourcepb.Resource{
		func() *resourcepb.Resource { return s.write(owned(newThing("a", "two"), owner)) },
		func() *resourcepb.Resource { return s.write(s.read(first.GetId())) },
		func() *resourcepb.Resource { return s.writeStatus(statusOf(first, "key", "message")) },
		func() *resourcepb.Resource {
			return s.write(owned(&resourcepb.Resource{Id: idOf(thing2, "a"), Data: binary("three")}, owner))
		},
	} {
		now := step()
		if now.GetId().GetUid() != first.GetId().GetUid() {
			s.Errorf("the uid %s has become %s", first.GetId().GetUid(), now.GetId().GetUid())
		}
		s.same("the owner", now.GetOwner(), owner.GetId())
	}
	fixed := exactly("owner cannot be changed")
	stolen := but(newThing("a", "content"), func(r *resourcepb.Resource) { r.Owner = first.GetId() })
	s.refuse([]row{
		{"another uid", writes(but(newThing("a", "content"), func(r *resourcepb.Resource) { r.Id.Uid = stale })), codes.FailedPrecondition,
			exactly(wrongUid)},
		{"another owner", writes(stolen), codes.InvalidArgument, fixed},
		{"another owner at the stored version", writes(but(stolen, func(r *resourcepb.Resource) {
			r.Version = s.read(idOf(thing2, "a")).GetVersion()
		})), codes.InvalidArgument, fixed},
		{"no owner", writes(newThing("a", "content")), codes.InvalidArgument, fixed},
	})
}

func identityGeneration(s *suite) {
	before := s.write(newThing("a", "content"))
	generations := map[string]bool{before.GetGeneration(): true}
	for _, req := range []*resourcepb.Resource{
		newThing("a", "content"), // changes nothing
		newThing("a", "other"),
		with(newThing("a", "other"), "key", "value"),
		but(newThing("a", "other"), func(r *resourcepb.Resource) { r.Generation = before.GetGeneration() }),
	} {
		written := s.write(req)
		if generations[written.GetGeneration()] {
			s.Errorf("Write of %s gives it a generation it had before", text(req))
		}
		generations[written.GetGeneration()] = true
		after := s.writeStatus(statusOf(written, "key", "message"))
		if after.GetGeneration() != written.GetGeneration() {
			s.Error("WriteStatus changes the generation")
		}
		if after.GetVersion() == written.GetVersion() {
			s.Error("WriteStatus does not change the version")
		}
	}
}

// In identityStale a writer does not know that its resource was deleted, or deleted and recreated.
func identityStale(s *suite) {
	gone := s.write(newThing("a", "content"))
	s.delete(gone.GetId())
	blanket := but(gone, func(r *resourcepb.Resource) { r.Version = "" })
	rows := []row{
		{"Write by the uid", writes(blanket), codes.FailedPrecondition, exactly(wrongUid)},
		{"Write by the uid and the version", writes(gone), codes.FailedPrecondition, exactly(wrongUid)},
		{"WriteStatus by the uid", func(s *suite) error { return only(s.WriteStatus(s.ctx, statusOf(gone, "key", ""))) }, codes.NotFound,
			exactly(notFound)},
		{"Read by the uid", func(s *suite) error { return only(s.Read(s.ctx, &resourcepb.ReadRequest{Id: gone.GetId()})) }, codes.NotFound,
			exactly(notFound)},
	}
	s.refuse(append(rows, row{"Write by the version", writes(but(gone, func(r *resourcepb.Resource) { r.Id.Uid = "" })), codes.Aborted,
		exactly(casFailure)}))
	again := s.write(newThing("a", "again"))
	if again.GetId().GetUid() == gone.GetId().GetUid() {
		s.Error("a recreated resource has the uid of the deleted one")
	}
	s.refuse(rows)
	s.untouched("Delete by the uid of the deleted incarnation", func() { s.delete(gone.GetId()) })
}

// identityVersion moves a resource from one group version to the next.
func identityVersion(s *suite) {
	old := s.watch(&resourcepb.WatchListRequest{Type: thing})
	old.snapshot()
	newer := s.watch(&resourcepb.WatchListRequest{Type: thing2})
	newer.snapshot()
	first := s.write(newThing("a", "content"))
	s.same("the event of the older version", old.upsert("a"), first)

	move := &resourcepb.Resource{Id: idOf(thing2, "a"), Data: binary("moved")}
	moved := s.write(move)
	want := clone(moved)
	want.Id.Type, want.Data = thing2, binary("moved")
	s.same("Write of the newer version", moved, want)
	s.same("Read of the newer version", s.read(idOf(thing2, "a")), moved)
	s.refuse([]row{
		{"Read of the older version", func(s *suite) error { return only(s.Read(s.ctx, &resourcepb.ReadRequest{Id: idOf(thing, "a")})) },
			codes.InvalidArgument, "v2"},
		{"WriteStatus of the older version", func(s *suite) error { return only(s.WriteStatus(s.ctx, statusOf(first, "key", ""))) },
			codes.InvalidArgument, "v2"},
	})
	s.same("the event of the newer version", newer.upsert("a"), moved)
	gone := old.deleted("a")
	if gone.GetId().GetType().GetGroupVersion() != thing.GetGroupVersion() || gone.GetId().GetUid() != first.GetId().GetUid() {
		s.Errorf("the deletion that a watch of the older version shows is of %s", text(gone.GetId()))
	}

	// A watch of the older version gets one deletion only.
	s.write(move)
	newer.upsert("a")
	s.delete(first.GetId())
	newer.deleted("a")
	s.write(move)
	newer.upsert("a")
	flush := s.write(newThing("flush", "content"))
	s.same("the next event of the older version", old.next().GetUpsert().GetResource(), flush)

	// Now move it back.
	back := s.write(newThing("a", "back"))
	s.same("the event of the older version", old.upsert("a"), back)
	newer.deleted("a")
}
