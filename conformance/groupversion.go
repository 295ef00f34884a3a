package conformance

import (
	"github.com/ashlar-dev/storage/resourcepb"
)

var groupVersionCases = topic{"GroupVersion", []testCase{
	{name: "NotPartOfTheKey", run: groupVersionNoKey},
	{name: "ReplacedByWrite", run: groupVersionReplaced},
	{name: "IgnoredByDelete", run: groupVersionDelete},
	{name: "IgnoredByLists", run: groupVersionLists},
}}

func groupVersionNoKey(s *suite) {
	stored := s.create("a")
	second := newThing("a")
	second.Id = withGroupVersion(stored.Id, "v2")
	_, err := s.b.WriteCAS(s.ctx, second)
	if err == nil {
		s.Fatal("two group versions of one key stored side by side")
	}
	s.checkStored(stored)
	if got := s.list(things, home, ""); len(got) != 1 {
		s.Fatalf("List shows %d resources instead of one", len(got))
	}
}

func groupVersionReplaced(s *suite) {
	w := s.watchAll()
	res := s.create("a")
	s.expectUpsert(w, res)
	old := res.Id
	for _, v := range []string{"v2", "v1beta1", "", "v2"} {
		next := withNewData(res)
		next.Id = withGroupVersion(res.Id, v)
		res = s.write(next)
		s.equal("the id that WriteCAS returned", res.Id, next.Id)
		s.checkStored(res)
		s.expectUpsert(w, res)
		_, err := s.b.Read(s.ctx, strong, old)
		checkMismatch(s, "Read under the former group version", err, old.Type, res)
		old = res.Id
	}
}

func groupVersionDelete(s *suite) {
	w := s.watchAll()
	stored := s.create("a")
	s.noError("DeleteCAS under another group version", s.b.DeleteCAS(s.ctx, withGroupVersion(stored.Id, "v9"), stored.Version))
	s.checkAbsent(stored.Id)
	s.expectUpsert(w, stored)
	s.expectDelete(w, stored)
}

func groupVersionLists(s *suite) {
	var want []*resourcepb.Resource
	owner := s.create("owner")
	var children []*resourcepb.ID
	for _, v := range []string{"v1", "v2", ""} {
		res := newThing("version-" + v)
		res.Id = withGroupVersion(res.Id, v)
		// An owner is matched by its key and uid: the group version that a child names does not count.
		res.Owner = withGroupVersion(owner.Id, "other-"+v)
		want = append(want, s.write(res))
	}
	inOrder(want)
	for _, res := range want {
		children = append(children, res.Id)
	}
	s.equalLists("List", s.list(things, home, "version-"), want)
	s.equalLists("the snapshot of a watch", s.snapshot(s.watch(things, home, "version-")), want)
	s.checkOwned(owner.Id, children...)
	s.checkOwned(withGroupVersion(owner.Id, "v77"), children...)
}
