package conformance

import (
	"errors"
	"strconv"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var commitCases = topic{"Commit", []testCase{
	{name: "Nothing", needs: needTransactor, run: commitNothing},
	{name: "ResultsLineUp", needs: needTransactor, run: commitResults},
	{name: "Table", needs: needTransactor, run: commitTable},
	{name: "AllOrNothing", needs: needTransactor, run: commitAllOrNothing},
	{name: "LowestIndex", needs: needTransactor, run: commitLowestIndex},
	{name: "Malformed", needs: needTransactor, run: commitMalformed},
	{name: "MaxOps", needs: needTransactor, run: commitMaxOps},
	{name: "TooLarge", needs: needTransactor, run: commitTooLarge},
	{name: "Owners", needs: needTransactor, run: commitOwners},
}}

// failsAt demands that ops fail because of one of them, and how.
func failsAt(s *suite, what string, index int, want error, ops ...storage.Op) {
	s.Helper()
	results, err := s.transactor().Commit(s.ctx, ops)
	s.wantError(what, err, want)
	var op *storage.OpError
	if !errors.As(err, &op) {
		s.Fatalf("%s: %q is no *storage.OpError", what, err)
	}
	if op.Index != index {
		s.Fatalf("%s: the error is for operation %d, want %d: %v", what, op.Index, index, err)
	}
	s.wantError(what+", unwrapped", op.Err, want)
	if results != nil {
		s.Errorf("%s: results beside the error", what)
	}
}

func commitNothing(s *suite) {
	for _, ops := range [][]storage.Op{nil, {}} {
		results, err := s.transactor().Commit(s.ctx, ops)
		if results != nil || err != nil {
			s.Fatalf("Commit of nothing: %v, %v, want nil, nil", results, err)
		}
	}
}

func commitResults(s *suite) {
	updated, deletedRes, checked := s.create("updated"), s.create("deleted"), s.create("checked")
	w := s.watch(anything, anywhere, "")
	s.snapshot(w)
	created, next := newThing("created"), withNewData(updated)
	results := s.commit(
		storage.Op{Check: checked.Id, Version: checked.Version},
		storage.Op{Write: created},
		storage.Op{Delete: deletedRes.Id, Version: deletedRes.Version},
		storage.Op{Check: withUid(thingID("absent"), "")},
		storage.Op{Write: next},
		storage.Op{Delete: thingID("nothing"), Version: "any"},
		storage.Op{Delete: thingID("checked-2"), Version: ""},
	)
	for i, res := range results {
		if (i == 1 || i == 4) != (res != nil) {
			s.Fatalf("result %d is %v", i, res)
		}
	}
	for i, want := range map[int]*resourcepb.Resource{1: clone(created), 4: clone(next)} {
		got := results[i]
		if got.Version == "" || got.Version == want.Version {
			s.Fatalf("result %d has version %q after %q", i, got.Version, want.Version)
		}
		want.Version = got.Version
		s.equal("a result of Commit", got, want)
		s.checkStored(want)
	}
	s.checkStored(checked)
	s.checkAbsent(deletedRes.Id)
	expectAnyOrder(s, w, upsertEvent(results[1]), upsertEvent(results[4]), deleteEvent(deletedRes))

	// The versions that a transaction gives are good for single writes, and the other way round.
	s.expectUpsert(w, s.update(results[1]))
	alone := s.commit(storage.Op{Write: withNewData(results[4])})[0]
	s.expectUpsert(w, alone)
	s.checkStored(alone)
	s.commit(storage.Op{Delete: alone.Id, Version: alone.Version})
	s.expectDelete(w, alone)

	// A delete with Present acts as any other delete, with other changes and alone.
	taken := s.commit(storage.Op{Delete: checked.Id, Version: checked.Version, Present: true}, storage.Op{Write: newThing("last")})
	s.checkAbsent(checked.Id)
	expectAnyOrder(s, w, deleteEvent(checked), upsertEvent(taken[1]))
	gone := storage.Op{Delete: taken[1].Id, Version: taken[1].Version, Present: true}
	s.commit(gone)
	s.expectDelete(w, taken[1])
	failsAt(s, "Commit of a single delete with Present, of an absent key", 0, storage.ErrCASFailure, gone)
}

// commitTable puts each row of the decision tables among operations that are fine.
func commitTable(s *suite) {
	write := func(id *resourcepb.ID, version string) storage.Op {
		res := newResource(id)
		res.Version = version
		return storage.Op{Write: res}
	}
	del := func(id *resourcepb.ID, version string) storage.Op { return storage.Op{Delete: id, Version: version} }
	take := func(id *resourcepb.ID, version string) storage.Op {
		return storage.Op{Delete: id, Version: version, Present: true}
	}
	check := func(id *resourcepb.ID, version string) storage.Op { return storage.Op{Check: id, Version: version} }
	for i, row := range []struct {
		decision
		op func(id *resourcepb.ID, version string) storage.Op
	}{
		{decision{"a write of nothing at a version", false, otherUid, otherVersion, storage.ErrCASFailure}, write},
		{decision{"a write of another uid", true, otherUid, sameVersion, storage.ErrWrongUid}, write},
		{decision{"a write of another uid at another version", true, otherUid, otherVersion, storage.ErrWrongUid}, write},
		{decision{"a write of another uid without a version", true, otherUid, noText, storage.ErrWrongUid}, write},
		{decision{"a write at another version", true, sameUid, otherVersion, storage.ErrCASFailure}, write},
		{decision{"a write without a version", true, sameUid, noText, storage.ErrCASFailure}, write},
		{decision{"a write", true, sameUid, sameVersion, nil}, write},
		{decision{"a create", false, otherUid, noText, nil}, write},
		{decision{"a delete of nothing", false, otherUid, otherVersion, nil}, del},
		{decision{"a delete of nothing without a uid", false, noText, otherVersion, nil}, del},
		{decision{"a delete of another uid", true, otherUid, sameVersion, nil}, del},
		{decision{"a delete without a uid", true, noText, sameVersion, nil}, del},
		{decision{"a delete at another version", true, sameUid, otherVersion, storage.ErrCASFailure}, del},
		{decision{"a delete without a version", true, sameUid, noText, storage.ErrCASFailure}, del},
		{decision{"a delete with Present of an absent key", false, otherUid, otherVersion, storage.ErrCASFailure}, take},
		{decision{"a delete with Present of an absent key, without a version", false, otherUid, noText, storage.ErrCASFailure}, take},
		{decision{"a delete with Present of another uid", true, otherUid, sameVersion, storage.ErrWrongUid}, take},
		{decision{"a delete with Present at another version", true, sameUid, otherVersion, storage.ErrCASFailure}, take},
		{decision{"a delete with Present, without a version", true, sameUid, noText, storage.ErrCASFailure}, take},
		{decision{"a check of nothing at a version", false, otherUid, otherVersion, storage.ErrCASFailure}, check},
		{decision{"a check of another uid", true, otherUid, sameVersion, storage.ErrWrongUid}, check},
		{decision{"a check of another uid at another version", true, otherUid, otherVersion, storage.ErrWrongUid}, check},
		{decision{"a check at another version", true, sameUid, otherVersion, storage.ErrCASFailure}, check},
		{decision{"a check", true, sameUid, sameVersion, nil}, check},
		{decision{"a check for absence", false, otherUid, noText, nil}, check},
		{decision{"a check for absence without a uid", false, noText, noText, nil}, check},
		{decision{"a check for the absence of a stored key", true, sameUid, noText, storage.ErrCASFailure}, check},
		{decision{"a check for the absence of a stored key, without a uid", true, noText, noText, storage.ErrCASFailure}, check},
		{decision{"a check for the absence of a key that is stored under another uid", true, otherUid, noText, storage.ErrWrongUid}, check},
	} {
		id := thingID("row-" + strconv.Itoa(i))
		var before *resourcepb.Resource
		if row.current {
			before = s.write(newResource(id))
		}
		good := func(n int) storage.Op {
			return storage.Op{Write: newThing("good-" + strconv.Itoa(i) + "-" + strconv.Itoa(n))}
		}
		ops := []storage.Op{good(0), good(1), good(2)}
		ops[i%3] = row.op(withUid(id, row.uid(before)), row.version(before))
		if row.want == nil {
			results := s.commit(ops...)
			s.checkStored(results[(i+1)%3])
			switch {
			case ops[i%3].Write != nil:
				s.checkStored(results[i%3])
			case row.current:
				s.checkStored(before)
			default:
				s.checkAbsent(id)
			}
			continue
		}
		failsAt(s, "Commit with "+row.name, i%3, row.want, ops...)
		s.checkAbsent(thingID("good-" + strconv.Itoa(i) + "-" + strconv.Itoa((i+1)%3)))
		s.checkAbsent(thingID("good-" + strconv.Itoa(i) + "-" + strconv.Itoa((i+2)%3)))
		if row.current {
			s.checkStored(before)
		} else {
			s.checkAbsent(id)
		}
	}
}

func commitAllOrNothing(s *suite) {
	updated, gone, stale := s.create("updated"), s.create("gone"), s.create("stale")
	s.update(stale)
	owner := s.create("owner")
	child := s.write(newChild("child", owner.Id))
	all := s.list(anything, anywhere, "")
	w := s.watch(anything, anywhere, "")
	s.snapshot(w)

	moved := withNewData(child)
	moved.Owner = nil
	created := newChild("created", owner.Id)
	failsAt(s, "Commit with one stale write", 4, storage.ErrCASFailure,
		storage.Op{Write: withNewData(updated)},
		storage.Op{Delete: gone.Id, Version: gone.Version},
		storage.Op{Write: created},
		storage.Op{Write: moved},
		storage.Op{Write: withNewData(stale)})
	s.equalLists("List after a Commit that failed", s.list(anything, anywhere, ""), all)
	s.checkOwned(owner.Id, child.Id)
	// The next event of each key is its next change: the failed transaction made no event.
	want := []*resourcepb.WatchEvent{upsertEvent(s.update(updated)), upsertEvent(s.update(gone)), upsertEvent(s.write(created)), upsertEvent(s.write(moved))}
	expectPerKey(s, w, want...)
}

func commitLowestIndex(s *suite) {
	stored := s.create("stored")
	wrong := withNewData(stored)
	wrong.Id.Uid = newUid()
	other := s.create("other")
	good := func(name string) storage.Op { return storage.Op{Write: newThing(name)} }
	stale := storage.Op{Delete: other.Id, Version: "stale"}
	present := storage.Op{Check: withUid(s.create("present").Id, "")}
	failsAt(s, "Commit with three that fail", 1, storage.ErrWrongUid, good("a"), storage.Op{Write: wrong}, good("b"), stale, present)
	failsAt(s, "Commit with three that fail", 0, storage.ErrCASFailure, stale, good("z"), storage.Op{Write: wrong}, present)
	failsAt(s, "Commit with three that fail", 2, storage.ErrCASFailure, good("z"), good("a"), present, storage.Op{Write: wrong}, stale)

	nameless := storage.Op{Write: newThing("")}
	failsAt(s, "Commit with two that are invalid", 1, storage.ErrInvalid, good("a"), nameless, good("b"), storage.Op{Delete: thingID("")})
}
