package servicetest

import (
	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage/resourcepb"
)

var deleteCases = topic{"Delete", []testCase{
	{name: "Table", rules: []int{1}, run: deleteTable},
	{name: "WrongVersion", rules: []int{11, 12}, run: deleteWrongVersion},
	{name: "RejectedByHooks", rules: []int{16}, run: deleteRefused},
}}

func deleteTable(s *suite) {
	deletes := func(id *resourcepb.ID, version string) error {
		return only(s.Delete(s.ctx, &resourcepb.DeleteRequest{Id: id, Version: version}))
	}
	s.write(newThing("other", "content"))
	a := s.write(newThing("a", "content"))
	s.untouched("Delete of an absent uid", func() {
		s.succeeds("Delete of an absent resource", deletes(idOf(thing, "absent"), ""))
		s.succeeds("Delete of an absent resource, at a version", deletes(idOf(thing, "absent"), "1"))
		s.succeeds("Delete of another uid", deletes(but(a.GetId(), func(id *resourcepb.ID) { id.Uid = stale }), ""))
		s.succeeds("Delete of another uid at the stored version",
			deletes(but(a.GetId(), func(id *resourcepb.ID) { id.Uid = stale }), a.GetVersion()))
		s.succeeds("Delete in a missing tenancy", deletes(in(missing, "", newThing("a", "")).GetId(), ""))
	})
	for what, call := range map[string]func(*resourcepb.Resource) error{
		"by name":                        func(r *resourcepb.Resource) error { return deletes(idOf(thing, "a"), "") },
		"by name, at the stored version": func(r *resourcepb.Resource) error { return deletes(idOf(thing, "a"), r.GetVersion()) },
		"by uid":                         func(r *resourcepb.Resource) error { return deletes(r.GetId(), "") },
		"by uid, at the stored version":  func(r *resourcepb.Resource) error { return deletes(r.GetId(), r.GetVersion()) },
		"by another group version":       func(r *resourcepb.Resource) error { return deletes(idOf(thing2, "a"), "") },
	} {
		res := s.write(newThing("a", "content"))
		stones := len(s.list(tombstones))
		s.succeeds("Delete "+what, call(res))
		if s.stored(res.GetId()) {
			s.Errorf("after Delete %s the resource is still stored", what)
		}
		if n := len(s.list(tombstones)) - stones; n != 1 {
			s.Errorf("Delete %s leaves %d tombstones, expected 1", what, n)
		}
	}
	if !s.stored(in("default", "default", newThing("other", "")).GetId()) {
		s.Error("Delete has deleted another resource")
	}
}

func deleteWrongVersion(s *suite) {
	plain := s.write(newThing("plain", "content"))
	old := plain.GetVersion()
	plain = s.write(newThing("plain", "newer"))
	finalized := s.write(with(newThing("finalized", "content"), "finalizers", "one"))
	var rows []row
	for _, res := range []*resourcepb.Resource{plain, finalized} {
		for _, version := range []string{old, "garbage", "0"} {
			for what, id := range map[string]*resourcepb.ID{"by name": idOf(thing, res.GetId().GetName()), "by uid": res.GetId()} {
				rows = append(rows, row{"Delete of " + res.GetId().GetName() + " " + what + " at version " + version, func(s *suite) error {
					return only(s.Delete(s.ctx, &resourcepb.DeleteRequest{Id: id, Version: version}))
				}, codes.Aborted, exactly(casFailure)})
			}
		}
	}
	s.refuse(rows)
	if stones := s.list(tombstones); len(stones) > 0 {
		s.Errorf("nothing is deleted, but the tombstone %s exists", text(stones[0]))
	}
}

// deleteRefused deletes a resource that the hooks of its type reject today.
func deleteRefused(s *suite) {
	plain := s.write(newThing("plain", "content"))
	finalized := s.write(with(newThing("finalized", "content"), "finalizers", "one two"))
	marked := s.write(with(newThing("marked", "content"), "finalizers", "one two"))
	s.delete(marked.GetId())
	s.Client = s.client(s.server(&world{strict: true}, s.store))
	s.refuse([]row{{"Write of a resource that was valid once", writes(newThing("plain", "content")), codes.InvalidArgument,
		exactly("a thing must be better than this")}})
	s.delete(plain.GetId())
	s.delete(finalized.GetId())
	now := s.read(finalized.GetId())
	s.write(with(now, "finalizers", "two"))
	now = s.read(finalized.GetId())
	s.write(with(now, "finalizers", ""))
	s.write(with(newThing("marked", "content"), "finalizers", ""))
	for _, res := range []*resourcepb.Resource{plain, finalized, marked} {
		if s.stored(res.GetId()) {
			s.Errorf("%s cannot be deleted", res.GetId().GetName())
		}
	}
}
