package conformance

import (
	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var writeCases = topic{"Write", []testCase{
	{name: "Table", run: writeTable},
	{name: "ResultIsWhatIsStored", run: writeResult},
	{name: "FailedWriteChangesNothing", run: writeFailedChangesNothing},
	{name: "OtherKeysUntouched", run: writeOtherKeys},
	{name: "SecondHandle", needs: needAnother, run: writeSecondHandle},
	{name: "Durable", needs: needAnother, run: writeDurable},
}}

func writeTable(s *suite) {
	for _, d := range []decision{
		{"absent, no version", false, otherUid, noText, nil},
		{"absent, a version", false, otherUid, otherVersion, storage.ErrCASFailure},
		{"another uid, the same version", true, otherUid, sameVersion, storage.ErrWrongUid},
		{"another uid, another version", true, otherUid, otherVersion, storage.ErrWrongUid},
		{"another uid, no version", true, otherUid, noText, storage.ErrWrongUid},
		{"the same uid, another version", true, sameUid, otherVersion, storage.ErrCASFailure},
		{"the same uid, no version", true, sameUid, noText, storage.ErrCASFailure},
		{"the same uid and version", true, sameUid, sameVersion, nil},
	} {
		id := thingID(d.name)
		var before *resourcepb.Resource
		if d.current {
			before = s.write(newResource(id))
		}
		res := newResource(withUid(id, d.uid(before)))
		res.Version = d.version(before)
		res.Data = payload("second")

		got, err := s.b.WriteCAS(s.ctx, res)
		if d.want != nil {
			s.wantError("WriteCAS with "+d.name, err, d.want)
			if got != nil {
				s.Errorf("WriteCAS with %s: a resource beside the error", d.name)
			}
			if d.current {
				s.checkStored(before)
			} else {
				s.checkAbsent(id)
			}
			continue
		}
		s.noError("WriteCAS with "+d.name, err)
		if got.Version == "" || got.Version == before.GetVersion() {
			s.Fatalf("WriteCAS with %s: version %q after %q", d.name, got.Version, before.GetVersion())
		}
		want := clone(res)
		want.Version = got.Version
		s.equal("WriteCAS with "+d.name, got, want)
		s.checkStored(want)
	}
}

func writeResult(s *suite) {
	owner := s.create("owner")
	res := newThing("full")
	res.Owner = clone(owner.Id)
	res.Generation = "generation"
	res.Metadata = map[string]string{"": "empty key", "a/b": "", "äöü": "\n"}
	res.Status = map[string]*resourcepb.Status{
		"controller": {ObservedGeneration: "generation", Conditions: []*resourcepb.Condition{
			{Type: "Ready", State: resourcepb.Condition_STATE_TRUE, Reason: "Done", Message: "all is well", Resource: &resourcepb.Reference{
				Type: clone(thing), Tenancy: clone(home), Name: "other", Section: "spec",
			}},
		}},
	}
	for range 3 {
		got := s.write(res)
		want := clone(res)
		want.Version = got.Version
		s.equal("WriteCAS", got, want)
		s.checkStored(want)
		res = want
		res.Generation += "'"
	}
	// Fields that the new resource leaves empty are removed, not merged.
	bare := &resourcepb.Resource{Id: clone(res.Id), Version: res.Version}
	got := s.write(bare)
	bare.Version = got.Version
	s.equal("WriteCAS of an empty resource", got, bare)
	s.checkStored(bare)
}

func writeFailedChangesNothing(s *suite) {
	w := s.watch(things, anywhere, "")
	s.snapshot(w)
	stored := s.create("a")
	s.expectUpsert(w, stored)

	stale := withNewData(stored)
	stored = s.update(stored)
	s.expectUpsert(w, stored)
	for range 3 {
		_, err := s.b.WriteCAS(s.ctx, stale)
		s.wantError("WriteCAS at an old version", err, storage.ErrCASFailure)
		wrong := withNewData(stored)
		wrong.Id.Uid = newUid()
		_, err = s.b.WriteCAS(s.ctx, wrong)
		s.wantError("WriteCAS with another uid", err, storage.ErrWrongUid)
		s.wantError("DeleteCAS at an old version", s.b.DeleteCAS(s.ctx, stale.Id, stale.Version), storage.ErrCASFailure)
		s.noError("DeleteCAS with another uid", s.b.DeleteCAS(s.ctx, wrong.Id, wrong.Version))
		s.checkStored(stored)
	}
	// The next event of this key is the next success: the failures made none.
	s.expectUpsert(w, s.update(stored))
}

func writeOtherKeys(s *suite) {
	neighbours := []*resourcepb.Resource{s.create("a"), s.create("aa"), s.create("b"), s.create("A")}
	res := s.create("ab")
	for range 3 {
		res = s.update(res)
	}
	s.delete(res)
	for _, n := range neighbours {
		s.checkStored(n)
	}
}

func writeSecondHandle(s *suite) {
	first := s.b
	s.b = s.another()
	res := newThing("a")
	for i := range 6 {
		// Another handle accepts a returned version at once.
		stored, err := []storage.Backend{first, s.b}[i%2].WriteCAS(s.ctx, res)
		s.noError("WriteCAS through the other handle", err)
		s.checkStored(stored)
		res = withNewData(stored)
	}
	s.noError("DeleteCAS through the other handle", first.DeleteCAS(s.ctx, res.Id, res.Version))
	s.checkAbsent(res.Id)
}

func writeDurable(s *suite) {
	kept, gone := s.create("kept"), s.create("gone")
	kept = s.update(kept)
	s.delete(gone)
	s.closeBackend(s.b)

	s.b = s.another()
	s.checkStored(kept)
	s.checkAbsent(gone.Id)
	s.equalLists("List after opening again", s.list(things, anywhere, ""), []*resourcepb.Resource{kept})
	s.checkStored(s.update(kept))
}
