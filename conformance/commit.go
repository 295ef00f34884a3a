package conformance

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var commitCases = topic{"Commit", []testCase{
	{name: "Malformed", needs: needTransactor, run: commitMalformed},
	{name: "MaxOps", needs: needTransactor, run: commitMaxOps},
	{name: "Conflicts", needs: needTransactor, run: commitConflicts},
	{name: "TooLarge", needs: needTransactor, run: commitTooLarge},
}}

// failsAt demands that ops fail because of the operation with this index, with the error want.
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

func commitMalformed(s *suite) {
	stored := s.create("a")
	second := newThing("a")
	second.Id = withGroupVersion(second.Id, "v2")
	for name, ops := range map[string][]storage.Op{
		"no operation in it":            {{}},
		"only a version":                {{Version: "v"}},
		"write and delete in one":       {{Write: newThing("b"), Delete: thingID("c")}},
		"write and check in one":        {{Write: newThing("b"), Check: thingID("c")}},
		"delete and check in one":       {{Delete: thingID("b"), Check: thingID("c"), Version: "v"}},
		"all three":                     {{Write: newThing("b"), Delete: thingID("c"), Check: thingID("d")}},
		"a version beside a write":      {{Write: withNewData(stored), Version: stored.Version}},
		"presence beside a write":       {{Write: newThing("b"), Present: true}},
		"presence beside a check":       {{Check: stored.Id, Version: stored.Version, Present: true}},
		"presence alone":                {{Present: true}},
		"presence without a uid":        {{Delete: withUid(stored.Id, ""), Version: stored.Version, Present: true}},
		"two writes of one key":         {{Write: newThing("b")}, {Write: newThing("b")}},
		"two writes, two versions":      {{Write: withNewData(stored)}, {Write: second}},
		"delete and create of one key":  {{Delete: stored.Id, Version: stored.Version}, {Write: newThing("a")}},
		"check and write of one key":    {{Check: stored.Id, Version: stored.Version}, {Write: withNewData(stored)}},
		"two checks of one key":         {{Check: stored.Id, Version: stored.Version}, {Check: withUid(stored.Id, "")}},
		"two deletes of one key":        {{Delete: thingID("b")}, {Write: newThing("c")}, {Delete: thingID("b")}},
		"a write without a uid":         {{Write: newResource(withUid(thingID("b"), ""))}},
		"a check without a uid":         {{Check: withUid(stored.Id, ""), Version: stored.Version}},
		"a resource without an id":      {{Write: &resourcepb.Resource{}}},
		"a delete without a type":       {{Delete: &resourcepb.ID{Uid: "u", Name: "n", Tenancy: clone(home)}}},
		"a check without a tenancy":     {{Check: &resourcepb.ID{Uid: "u", Name: "n", Type: clone(thing)}}},
		"a wildcard for a name":         {{Delete: thingID("*"), Version: "v"}},
		"an owner without a uid":        {{Write: newChild("b", withUid(thingID("c"), ""))}},
		"a good one and a malformed":    {{Write: newThing("b")}, {}},
		"a good one and a nameless one": {{Write: newThing("b")}, {Write: newThing("")}},
	} {
		results, err := s.transactor().Commit(s.ctx, ops)
		s.wantError("Commit with "+name, err, storage.ErrInvalid)
		if results != nil {
			s.Errorf("Commit with %s: results beside the error", name)
		}
	}
	nameless := storage.Op{Write: newThing("")}
	failsAt(s, "Commit with two that are invalid", 1, storage.ErrInvalid, storage.Op{Write: newThing("b")}, nameless, storage.Op{Delete: thingID("")})
	s.equalLists("List after malformed transactions", s.list(anything, anywhere, ""), []*resourcepb.Resource{stored})
}

// commitMaxOps fills a transaction to its limit with the most expensive operations: owners that are added, replaced and removed.
func commitMaxOps(s *suite) {
	transactor := s.transactor()
	maxOps := transactor.MaxOps()
	if maxOps < 32 {
		s.Fatalf("MaxOps is %d, want at least 32", maxOps)
	}
	n := min(maxOps, 128)
	one, two := s.create("owner-one"), s.create("owner-two")
	w := s.watch(things, home, "child-")
	s.snapshot(w)
	ops := make([]storage.Op, n)
	for i := range ops {
		ops[i].Write = newChild(fmt.Sprintf("child-%03d", i), one.Id)
	}
	step := func(owner, former *resourcepb.ID) []*resourcepb.Resource {
		results := s.commit(ops...)
		var ids []*resourcepb.ID
		var events []*resourcepb.WatchEvent
		for _, res := range results {
			ids = append(ids, res.Id)
			events = append(events, upsertEvent(res))
		}
		s.equalLists("List after a transaction of the largest size", s.list(things, home, "child-"), results)
		s.checkOwned(owner, ids...)
		s.checkOwned(former)
		expectAnyOrder(s, w, events...)
		return results
	}
	results := step(one.Id, two.Id)
	for i, res := range results {
		ops[i].Write = withNewData(res)
		ops[i].Write.Owner = clone(two.Id)
	}
	results = step(two.Id, one.Id)

	// One more operation is too many. The error belongs to the transaction, not to an operation.
	tooMany := make([]storage.Op, maxOps+1)
	for i := range tooMany {
		tooMany[i] = storage.Op{Delete: thingID("nothing-" + strconv.Itoa(i)), Version: "v"}
	}
	_, err := transactor.Commit(s.ctx, tooMany)
	failsTooLarge(s, "Commit of MaxOps + 1 operations", err)

	var events []*resourcepb.WatchEvent
	for i, res := range results {
		ops[i] = storage.Op{Delete: res.Id, Version: res.Version}
		events = append(events, deleteEvent(res))
	}
	s.commit(ops...)
	s.checkOwned(two.Id)
	expectAnyOrder(s, w, events...)
	s.equalLists("List after all were deleted", s.list(things, home, "child-"), nil)
}

func failsTooLarge(s *suite, what string, err error) {
	s.Helper()
	s.wantError(what, err, storage.ErrTooLarge)
	var op *storage.OpError
	if errors.As(err, &op) {
		s.Fatalf("%s is no single operation's fault, yet the error is for operation %d", what, op.Index)
	}
}

// commitTooLarge writes resources of just below 1 MiB together, and then of more.
func commitTooLarge(s *suite) {
	const limit = 1 << 20
	members := max(2, limit/s.h.MaxSize+1)
	if members > s.transactor().MaxOps() {
		return // nothing so large fits into a transaction
	}
	ops := make([]storage.Op, members)
	for i := range ops {
		ops[i].Write = withSize(newThing("member-"+strconv.Itoa(i)), limit/members)
	}
	s.commit(ops...)
	for i := range ops {
		ops[i].Write = withSize(newThing("other-"+strconv.Itoa(i)), limit/members+1)
	}
	_, err := s.transactor().Commit(s.ctx, ops)
	failsTooLarge(s, "Commit of more than 1 MiB together", err)
	if got := s.list(things, home, "other-"); len(got) != 0 {
		s.Fatalf("%d members of a transaction that is too large were stored", len(got))
	}
	_, err = s.transactor().Commit(s.ctx, []storage.Op{{Write: newThing("small")}, {Write: withSize(newThing("huge"), s.h.MaxSize+1)}})
	s.wantError("Commit with a resource that is too large", err, storage.ErrTooLarge)
	s.checkAbsent(thingID("small"))
}

// commitConflicts commits pairs of transactions concurrently. Only one of a pair can succeed: each checks the resource that the other one
// writes, or both delete a resource that must be present.
func commitConflicts(s *suite) {
	handles := []storage.Backend{s.b, s.b}
	if s.h.OneHandle == "" {
		handles = s.handles(2)
	}
	for round := range s.scale(24) {
		a, b := s.create(fmt.Sprint("a-", round)), s.create(fmt.Sprint("b-", round))
		check := func(res *resourcepb.Resource) storage.Op { return storage.Op{Check: res.Id, Version: res.Version} }
		oneSucceeds(s, handles, "that each check a key of the other one", [2][]storage.Op{
			{check(a), {Write: withNewData(b)}}, {check(b), {Write: withNewData(a)}},
		})
		c := s.create(fmt.Sprint("c-", round))
		remove := storage.Op{Delete: c.Id, Version: c.Version, Present: true}
		oneSucceeds(s, handles, "that delete a present resource", [2][]storage.Op{
			{remove, {Write: newThing(fmt.Sprint("d-", round))}}, {remove, {Write: newThing(fmt.Sprint("e-", round))}},
		})
	}
}

// oneSucceeds commits two transactions at once and demands that one of them fails by a conflict.
func oneSucceeds(s *suite, handles []storage.Backend, what string, transactions [2][]storage.Op) {
	s.Helper()
	var errs [2]error
	s.parallel(2, func(i int) error {
		transactor, _ := storage.As[storage.Transactor](handles[i])
		if _, errs[i] = transactor.Commit(s.ctx, transactions[i]); errs[i] != nil && !errors.Is(errs[i], storage.ErrCASFailure) {
			return errs[i]
		}
		return nil
	})
	if (errs[0] == nil) == (errs[1] == nil) {
		s.Fatalf("two transactions %s: got errors %v and %v, want one ErrCASFailure", what, quoteError(errs[0]), quoteError(errs[1]))
	}
}
