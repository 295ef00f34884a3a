package conformance

import (
	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var deleteCases = topic{"Delete", []testCase{
	{name: "Table", run: deleteTable},
	{name: "Repeated", run: deleteRepeated},
	{name: "CreateAgain", run: deleteThenCreate},
}}

func deleteTable(s *suite) {
	for _, d := range []struct {
		decision
		deleted bool
	}{
		{decision{"absent, no version", false, otherUid, noText, nil}, false},
		{decision{"absent, a version", false, otherUid, otherVersion, nil}, false},
		{decision{"absent, no uid", false, noText, otherVersion, nil}, false},
		{decision{"another uid, the same version", true, otherUid, sameVersion, nil}, false},
		{decision{"another uid, another version", true, otherUid, otherVersion, nil}, false},
		{decision{"another uid, no version", true, otherUid, noText, nil}, false},
		{decision{"no uid, the same version", true, noText, sameVersion, nil}, false},
		{decision{"no uid, another version", true, noText, otherVersion, nil}, false},
		{decision{"no uid, no version", true, noText, noText, nil}, false},
		{decision{"the same uid, another version", true, sameUid, otherVersion, storage.ErrCASFailure}, false},
		{decision{"the same uid, no version", true, sameUid, noText, storage.ErrCASFailure}, false},
		{decision{"the same uid and version", true, sameUid, sameVersion, nil}, true},
	} {
		id := thingID(d.name)
		var before *resourcepb.Resource
		if d.current {
			before = s.write(newResource(id))
		}
		err := s.b.DeleteCAS(s.ctx, withUid(id, d.uid(before)), d.version(before))
		if d.want == nil {
			s.noError("DeleteCAS with "+d.name, err)
		} else {
			s.wantError("DeleteCAS with "+d.name, err, d.want)
		}
		if d.current && !d.deleted {
			s.checkStored(before)
		} else {
			s.checkAbsent(id)
		}
	}
}

func deleteRepeated(s *suite) {
	res := s.update(s.create("a"))
	w := s.watch(things, anywhere, "")
	s.snapshot(w)
	for range 3 {
		s.delete(res)
		s.checkAbsent(res.Id)
		s.equalLists("List after DeleteCAS", s.list(things, anywhere, ""), nil)
	}
	s.expectDelete(w, res)
	// There is one deletion, although it was requested several times.
	s.expectUpsert(w, s.create("a"))
}

func deleteThenCreate(s *suite) {
	first := s.create("a")
	s.delete(first)

	_, err := s.b.WriteCAS(s.ctx, withNewData(first))
	s.wantError("WriteCAS of a deleted resource", err, storage.ErrCASFailure)
	s.checkAbsent(first.Id)

	second := s.create("a")
	_, err = s.b.WriteCAS(s.ctx, withNewData(first))
	s.wantError("WriteCAS of a resource that was deleted and created again", err, storage.ErrWrongUid)
	s.noError("DeleteCAS of a resource that was deleted and created again", s.b.DeleteCAS(s.ctx, first.Id, first.Version))
	s.noError("DeleteCAS of the old uid at the new version", s.b.DeleteCAS(s.ctx, first.Id, second.Version))
	s.checkStored(second)

	// The same uid may come back, too.
	s.delete(second)
	third := newThing("a")
	third.Id.Uid = first.Id.Uid
	third = s.write(third)
	_, err = s.b.WriteCAS(s.ctx, withNewData(first))
	s.wantError("WriteCAS at a version of an earlier life", err, storage.ErrCASFailure)
	s.checkStored(third)
}
