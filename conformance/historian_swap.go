package conformance

import (
	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
)

func historianSwap(s *suite) {
	h := s.historian()
	swap := func(what string, sw history.Swap, done bool) history.SwapResult {
		s.Helper()
		swapped, err := h.Swap(s.ctx, sw)
		s.noError(what, err)
		if swapped.Done != done {
			s.Fatalf("%s: done is %v", what, swapped.Done)
		}
		return swapped
	}
	refused := func(what string, sw history.Swap, stored *history.Record) {
		s.Helper()
		swapped := swap(what, sw, false)
		switch {
		case (stored == nil) != (swapped.Stored == nil):
			s.Fatalf("%s: the conflicting record is %v, expected %v", what, swapped.Stored, stored)
		case stored != nil:
			s.noError(what+": the conflicting record", compareRecords(*swapped.Stored, *stored))
		}
		if swapped.Revision < 1 || stored != nil && swapped.Revision < stored.Modified {
			s.Fatalf("%s: the answer is of revision %d", what, swapped.Revision)
		}
	}
	res := newThing("a")
	refused("a write over an absent resource", history.Swap{Write: res, Expect: newestRevision(s, h)}, nil)
	refused("a deletion of an absent resource", history.Swap{Delete: res.Id, Expect: newestRevision(s, h)}, nil)
	swap("a deletion of nothing, as expected", history.Swap{Delete: res.Id}, true)
	s.checkAbsent(res.Id)

	first := swap("a creation", history.Swap{Write: res}, true)
	s.checkStored(first.Stored.Resource)
	if r := first.Stored; r.Modified != first.Revision || r.Created != first.Revision || r.Writes != 1 {
		s.Fatalf("a creation at revision %d: %s", first.Revision, recordText(*r))
	}
	refused("a second creation", history.Swap{Write: res}, first.Stored)
	refused("a deletion that expects nothing", history.Swap{Delete: res.Id}, first.Stored)

	next := withNewData(first.Stored.Resource)
	next.Version = "does not matter"
	second := swap("an update", history.Swap{Write: next, Expect: first.Revision}, true)
	s.checkStored(second.Stored.Resource)
	if r := second.Stored; second.Revision <= first.Revision || r.Created != first.Revision || r.Modified != second.Revision || r.Writes != 2 {
		s.Fatalf("an update at revision %d after the creation at %d: %s", second.Revision, first.Revision, recordText(*r))
	}
	refused("an update at the revision before", history.Swap{Write: next, Expect: first.Revision}, second.Stored)
	refused("a deletion at the revision before", history.Swap{Delete: res.Id, Expect: first.Revision}, second.Stored)
	_, err := h.Swap(s.ctx, history.Swap{Write: newThing("a"), Expect: second.Revision})
	s.wantError("a write with another uid", err, storage.ErrWrongUid)
	s.checkStored(second.Stored.Resource)

	gone := swap("a deletion", history.Swap{Delete: withUid(res.Id, ""), Expect: second.Revision}, true)
	s.checkAbsent(res.Id)
	s.noError("the deleted record", compareRecords(*gone.Stored, *second.Stored))
	if gone.Revision <= second.Revision {
		s.Fatalf("the deletion of a resource with revision %d has revision %d", second.Revision, gone.Revision)
	}
	refused("an update of a deleted resource", history.Swap{Write: next, Expect: second.Revision}, nil)
	again := swap("a creation over a deleted resource", history.Swap{Write: newThing("a")}, true)
	if r := again.Stored; r.Created != again.Revision || r.Writes != 1 {
		s.Fatalf("a creation over a deleted resource, at revision %d: %s", again.Revision, recordText(*r))
	}
	historianTurns(s, again.Stored)
}

// historianTurns changes a resource by swaps of two handles and by WriteCAS in turn. A handle must not take its own last swap
// for the stored state.
func historianTurns(s *suite, stored *history.Record) {
	handles := []history.Historian{s.historian(), s.historianOf(s.another())}
	try := func(h history.Historian, expect int64) history.SwapResult {
		s.Helper()
		swapped, err := h.Swap(s.ctx, history.Swap{Write: withNewData(stored.Resource), Expect: expect})
		s.noError("a swap in turn", err)
		return swapped
	}
	before := stored
	for turn := range 6 {
		h := handles[turn%2]
		if turn == 4 { // neither of the handles' swaps
			s.write(withNewData(stored.Resource))
			before, stored = stored, recordOf(s, handles[1], stored.Resource.Id)
		}
		if swapped := try(h, before.Modified); before != stored && swapped.Done {
			s.Fatalf("turn %d: the resource was changed at revision %d, but a swap that expects %d succeeded", turn, stored.Modified, before.Modified)
		} else if before != stored {
			s.noError("the conflicting record", compareRecords(*swapped.Stored, *stored))
		} else {
			before, stored = stored, swapped.Stored
			continue
		}
		swapped := try(h, stored.Modified)
		if r := swapped.Stored; !swapped.Done || r.Created != stored.Created || r.Writes != stored.Writes+1 || r.Modified != swapped.Revision {
			s.Fatalf("turn %d: a swap over %s: %v, %s", turn, recordText(*stored), swapped.Done, recordText(*r))
		}
		before, stored = stored, swapped.Stored
	}
	s.delete(stored.Resource)
	if swapped := try(handles[1], stored.Modified); swapped.Done || swapped.Stored != nil {
		s.Fatalf("a swap of a resource that another caller deleted: %v", swapped)
	}
}
