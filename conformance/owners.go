package conformance

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var ownerCases = topic{"Owners", []testCase{
	{name: "None", run: ownerNone},
	{name: "KeyAndUid", run: ownerKeyAndUid},
	{name: "FollowChanges", run: ownerFollow},
	{name: "KeyOrder", run: ownerOrder},
	{name: "OwnerRecreated", run: ownerRecreated},
	{name: "CompleteAfterDeleteEvent", needs: needAnother, run: ownerAfterDelete},
}}

func ownerNone(s *suite) {
	got, err := s.b.OwnerReferences(s.ctx, s.create("alone").Id)
	s.noError("OwnerReferences of a resource without children", err)
	if got != nil {
		s.Fatalf("OwnerReferences of a resource without children: got %d references in a slice that is not nil, want nil", len(got))
	}
}

func ownerKeyAndUid(s *suite) {
	owner := s.create("owner")
	child := s.write(newChild("child", owner.Id))
	s.checkOwned(owner.Id, child.Id)
	s.checkOwned(child.Id)

	// An owner that differs in any part of the key, or in the uid, has no children.
	for _, other := range []*resourcepb.ID{
		newID("other", "Thing", "default", "default", "owner"),
		newID("conformance", "Other", "default", "default", "owner"),
		newID("conformance", "Thing", "other", "default", "owner"),
		newID("conformance", "Thing", "default", "other", "owner"),
		newID("conformance", "Thing", "default", "", "owner"),
		newID("conformance", "Thing", "default", "default", "owne"),
		newID("conformance", "Thing", "default", "default", "owner2"),
	} {
		s.checkOwned(withUid(other, owner.Id.Uid))
	}
	for _, uid := range []string{newUid(), "x", owner.Id.Uid + "x", owner.Id.Uid[:len(owner.Id.Uid)-1], strings.ToLower(owner.Id.Uid), "%"} {
		s.checkOwned(withUid(owner.Id, uid))
	}
	_, err := s.b.OwnerReferences(s.ctx, withUid(owner.Id, ""))
	s.wantError("OwnerReferences without a uid", err, storage.ErrInvalid)

	// An owner need not exist, and may be the child itself.
	nobody := thingID("nobody")
	orphan := s.write(newChild("orphan", nobody))
	s.checkOwned(nobody, orphan.Id)
	self := newThing("self")
	self.Owner = clone(self.Id)
	self = s.write(self)
	s.checkOwned(self.Id, self.Id)
	s.delete(self)
	s.checkOwned(self.Id)
	s.checkOwned(owner.Id, child.Id)
}

func ownerFollow(s *suite) {
	one, two := s.create("one"), s.create("two")
	child, twin := s.write(newChild("child", one.Id)), s.write(newChild("twin", one.Id))
	s.checkOwned(one.Id, child.Id, twin.Id)

	next := withNewData(child)
	next.Owner = clone(two.Id)
	_, err := s.b.WriteCAS(s.ctx, next)
	s.noError("WriteCAS with another owner", err)
	s.checkOwned(one.Id, twin.Id)
	s.checkOwned(two.Id, child.Id)
	// A write that fails moves nothing.
	next.Owner = clone(one.Id)
	_, err = s.b.WriteCAS(s.ctx, next)
	s.wantError("WriteCAS at an old version", err, storage.ErrCASFailure)
	s.checkOwned(two.Id, child.Id)

	child = s.read(child.Id)
	next = withNewData(child)
	next.Owner = nil
	child = s.write(next)
	s.checkOwned(two.Id)
	next = withNewData(child)
	next.Owner = clone(one.Id)
	next.Id.Type.GroupVersion = "v7"
	child = s.write(next)
	s.checkOwned(one.Id, child.Id, twin.Id)
	child = s.update(child)
	s.checkOwned(one.Id, child.Id, twin.Id)

	s.delete(one)
	s.checkOwned(one.Id, child.Id, twin.Id)
	s.delete(child)
	s.checkOwned(one.Id, twin.Id)
	s.delete(twin)
	s.checkOwned(one.Id)
}

func ownerOrder(s *suite) {
	owner := s.create("owner")
	var children []*resourcepb.Resource
	for i := range s.scale(40) {
		id := newID("g"+strconv.Itoa(i%3), "K"+strconv.Itoa(i%2), "p", "n"+strconv.Itoa(i%5), "name-"+strconv.Itoa(i*7%40))
		res := newResource(id)
		res.Owner = clone(owner.Id)
		children = append(children, s.write(res))
	}
	inOrder(children)
	var ids []*resourcepb.ID
	for _, c := range children {
		ids = append(ids, c.Id)
	}
	s.checkOwned(owner.Id, ids...)
}

func ownerRecreated(s *suite) {
	first := s.create("owner")
	old := s.write(newChild("old", first.Id))
	s.delete(first)
	second := s.create("owner")
	s.checkOwned(second.Id)
	s.checkOwned(first.Id, old.Id)
	young := s.write(newChild("young", second.Id))
	s.checkOwned(second.Id, young.Id)

	// A child that is created again belongs to its new owner.
	s.delete(old)
	again := s.write(newChild("old", second.Id))
	s.checkOwned(first.Id)
	s.checkOwned(second.Id, again.Id, young.Id)
}

// ownerAfterDelete acts as a garbage collector does: when it sees the deletion of an owner, it reads the owner references once.
func ownerAfterDelete(s *suite) {
	collector := s.another()
	w, err := collector.WatchList(s.ctx, things, home, "owner")
	s.mustOpen(w, err)
	s.snapshot(w)
	for i := range s.scale(12) {
		owner := s.create("owner-" + strconv.Itoa(i))
		s.expectUpsert(w, owner)
		var want []*resourcepb.ID
		for j := range 3 {
			want = append(want, s.write(newChild(fmt.Sprintf("child-%02d-%d", i, j), owner.Id)).Id)
		}
		s.delete(owner)
		s.expectDelete(w, owner)
		got, err := collector.OwnerReferences(s.ctx, owner.Id)
		s.noError("OwnerReferences", err)
		if err := compareIDs(got, want); err != nil {
			s.Fatalf("OwnerReferences after the owner's delete event: %v", err)
		}
	}
}
