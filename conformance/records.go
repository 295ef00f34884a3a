package conformance

import (
	"cmp"
	"fmt"
	"maps"
	mathrand "math/rand/v2"
	"slices"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

func newestRevision(s *suite, h history.Historian) int64 {
	s.Helper()
	_, newest, err := h.Revisions(s.ctx)
	s.noError("Revisions", err)
	return newest
}

// scanAll reads a span in parts of limit records, all at the revision of the first.
func scanAll(s *suite, h history.Historian, span history.Span, opts history.ScanOptions) (records []history.Record, revision int64) {
	s.Helper()
	for {
		scan, err := h.Scan(s.ctx, span, opts)
		s.noError(fmt.Sprintf("Scan at revision %d", opts.Revision), err)
		if opts.Limit > 0 && len(scan.Records) > opts.Limit {
			s.Fatalf("a scan returned %d records, the limit is %d", len(scan.Records), opts.Limit)
		}
		if opts.Revision != 0 && scan.Revision != opts.Revision {
			s.Fatalf("a scan at revision %d says that it was at %d", opts.Revision, scan.Revision)
		}
		opts.Revision = scan.Revision
		records = append(records, scan.Records...)
		if !scan.More {
			return records, scan.Revision
		}
		if len(scan.Records) == 0 {
			s.Fatal("a scan returned no record and says that there are more")
		}
		span = scan.Rest
	}
}

// nextKey is the first bound behind an id: names hold no NUL, so none lies between.
func nextKey(id *resourcepb.ID) *resourcepb.ID {
	next := clone(id)
	next.Name += "\x01"
	return next
}

// state is the content of a store, by key.
type state map[string]history.Record

func stateOf(records []history.Record) state {
	st := make(state, len(records))
	for _, r := range records {
		st[keyOf(r.Resource.Id)] = r
	}
	return st
}

func (st state) records() []history.Record {
	records := make([]history.Record, 0, len(st))
	for _, k := range slices.Sorted(maps.Keys(st)) {
		records = append(records, st[k])
	}
	return records
}

// apply applies a change to the state and compares its previous record with the state.
func (st state) apply(c history.Change) error {
	record := cmp.Or(c.Now, c.Before)
	if record == nil {
		return fmt.Errorf("the change of revision %d has neither Now nor Before", c.Revision)
	}
	k := keyOf(record.Resource.Id)
	was, there := st[k]
	switch {
	case !there && c.Before != nil:
		return fmt.Errorf("revision %d: nothing was stored before, it says %s", c.Revision, shortText(c.Before.Resource))
	case there && c.Before == nil:
		return fmt.Errorf("revision %d: no state before, stored was %s", c.Revision, shortText(was.Resource))
	case there:
		if err := compareRecords(*c.Before, was); err != nil {
			return fmt.Errorf("revision %d: the state before: %w", c.Revision, err)
		}
	}
	if c.Now == nil {
		delete(st, k)
		return nil
	}
	if c.Now.Modified != c.Revision {
		return fmt.Errorf("the change of revision %d says that it was made at %d", c.Revision, c.Now.Modified)
	}
	st[k] = *c.Now
	return nil
}

func compareRecords(got, want history.Record) error {
	if !proto.Equal(got.Resource, want.Resource) || got.Created != want.Created || got.Modified != want.Modified || got.Writes != want.Writes {
		return fmt.Errorf("\n got %s\nwant %s", recordText(got), recordText(want))
	}
	return nil
}

func recordText(r history.Record) string {
	return fmt.Sprintf("created %d, modified %d, writes %d: %s", r.Created, r.Modified, r.Writes, shortText(r.Resource))
}

func sameRecords(s *suite, what string, got, want []history.Record) {
	s.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			s.Fatalf("%s: %d records instead of %d: missing is %s", what, len(got), len(want), recordText(want[i]))
		case i >= len(want):
			s.Fatalf("%s: %d records instead of %d: too many is %s", what, len(got), len(want), recordText(got[i]))
		}
		if err := compareRecords(got[i], want[i]); err != nil {
			s.Fatalf("%s: record %d: %v", what, i, err)
		}
	}
}

// stateAt is a store as it was when its newest change had a revision.
type stateAt struct {
	revision int64
	state    state
}

// randomWrites makes n changes of every kind on few keys, one after the other. It returns the state before the first change and
// after each.
func randomWrites(s *suite, h history.Historian, n int) []stateAt {
	s.Helper()
	transactor, ok := storage.As[storage.Transactor](s.b)
	if !ok {
		s.Fatal("the backend is no storage.Transactor")
	}
	records, revision := scanAll(s, h, history.Span{}, history.ScanOptions{})
	past := []stateAt{{revision, stateOf(records)}}
	for i := range n {
		now := maps.Clone(past[i].state)
		names := []string{fmt.Sprint("key-", mathrand.IntN(5)), fmt.Sprint("other-", mathrand.IntN(3))}
		what := randomWrite(s, h, transactor, now, names, i)
		past = append(past, stateAt{newestRevision(s, h), now})
		checkRevision(s, h, what, past[i], past[i+1], names)
	}
	return past
}

// liveOnce makes one change, or one transaction of two, and puts its resources into the state, without numbers.
func randomWrite(s *suite, h history.Historian, transactor storage.Transactor, now state, names []string, i int) string {
	s.Helper()
	next := func(name string) (*resourcepb.Resource, bool) {
		was, there := now[keyOf(thingID(name))]
		if !there {
			return newThing(name), false
		}
		return withNewData(was.Resource), true
	}
	put := func(res *resourcepb.Resource) { now[keyOf(res.Id)] = history.Record{Resource: res} }
	res, there := next(names[0])
	was := now[keyOf(res.Id)]
	switch what := i % 6; {
	case what == 0:
		put(s.write(res))
		return "WriteCAS"
	case what == 1 && there:
		s.delete(was.Resource)
		delete(now, keyOf(res.Id))
		return "DeleteCAS"
	case what == 2 && there:
		swapped, err := h.Swap(s.ctx, history.Swap{Delete: res.Id, Expect: was.Modified})
		s.noError("Swap", err)
		checkSwapped(s, swapped, was.Modified)
		delete(now, keyOf(res.Id))
		return "Swap"
	case what == 3:
		swapped, err := h.Swap(s.ctx, history.Swap{Write: res, Expect: was.Modified})
		s.noError("Swap", err)
		checkSwapped(s, swapped, was.Modified)
		put(swapped.Stored.Resource)
		return "Swap"
	}
	other, _ := next(names[1])
	ops := []storage.Op{{Write: other}, {Write: res}}
	if there && i%2 == 0 {
		ops[1] = storage.Op{Delete: res.Id, Version: res.Version}
	}
	written, err := transactor.Commit(s.ctx, ops)
	s.noError("Commit", err)
	put(written[0])
	if ops[1].Write != nil {
		put(written[1])
	} else {
		delete(now, keyOf(res.Id))
	}
	return "Commit"
}

func checkSwapped(s *suite, swapped history.SwapResult, expected int64) {
	s.Helper()
	if !swapped.Done || swapped.Stored == nil {
		s.Fatalf("Swap at the revision %d that is stored: %+v", expected, swapped)
	}
}

// checkRevision reads the revisions of the changes between two states and compares them with the expected ones.
func checkRevision(s *suite, h history.Historian, what string, before, now stateAt, names []string) {
	s.Helper()
	if now.revision <= before.revision {
		s.Fatalf("the newest revision is %d after %s, it was %d before", now.revision, what, before.revision)
	}
	for _, name := range names {
		id := thingID(name)
		is, there := now.state[keyOf(id)]
		was := before.state[keyOf(id)]
		if !there || was.Resource != nil && was.Resource.Version == is.Resource.Version {
			continue
		}
		records, _ := scanAll(s, h, history.Span{From: id, To: nextKey(id)}, history.ScanOptions{Revision: now.revision})
		if len(records) != 1 {
			s.Fatalf("after %s a scan of one key finds %d records", what, len(records))
		}
		got := records[0]
		is.Modified, is.Created, is.Writes = got.Modified, got.Modified, 1
		if was.Resource != nil {
			is.Created, is.Writes = was.Created, was.Writes+1
		}
		if err := compareRecords(got, is); err != nil {
			s.Fatalf("after %s: %v", what, err)
		}
		if got.Modified <= before.revision || got.Modified > now.revision {
			s.Fatalf("%s between the revisions %d and %d has %d", what, before.revision, now.revision, got.Modified)
		}
		now.state[keyOf(id)] = is
	}
}

// nextCommit returns the next answer of a follower.
func nextCommit(s *suite, f history.Follower) ([]history.Change, int64) {
	s.Helper()
	ctx, cancel := s.timeoutContext()
	defer cancel()
	changes, revision, err := f.Next(ctx)
	s.noError("Next of a follower", err)
	for i, c := range changes {
		if c.More != (i < len(changes)-1) && c.More {
			s.Fatalf("the last change of an answer, of revision %d, says that its commit continues", c.Revision)
		}
		if c.Revision > revision {
			s.Fatalf("a change of revision %d came with those up to %d", c.Revision, revision)
		}
	}
	return changes, revision
}

// progress asks a follower for a bookmark and demands that it comes with no change.
func nextProgress(s *suite, f history.Follower) int64 {
	s.Helper()
	s.noError("Bookmark", f.Bookmark(s.ctx))
	changes, revision := nextCommit(s, f)
	if len(changes) > 0 {
		s.Fatalf("a change of revision %d came where there was none", changes[0].Revision)
	}
	return revision
}

// followToNewest returns everything that a follower has up to the newest revision, as commits.
func followToNewest(s *suite, f history.Follower) (commits [][]history.Change, revision int64) {
	s.Helper()
	s.noError("Bookmark", f.Bookmark(s.ctx))
	last := int64(0)
	for {
		changes, revision := nextCommit(s, f)
		if revision < last {
			s.Fatalf("a follower went back from revision %d to %d", last, revision)
		}
		last = revision
		if len(changes) == 0 {
			return commits, revision
		}
		for begin, i := 0, 0; i < len(changes); i++ {
			if !changes[i].More {
				commits = append(commits, changes[begin:i+1])
				begin = i + 1
			}
		}
	}
}

// checkReplay demands that a follower reports all changes since the first of these states.
func checkReplay(s *suite, f history.Follower, past []stateAt) {
	s.Helper()
	commits, revision := followToNewest(s, f)
	if len(commits) != len(past)-1 {
		s.Fatalf("%d commits after revision %d, expected %d", len(commits), past[0].revision, len(past)-1)
	}
	if newest := past[len(past)-1].revision; revision < newest {
		s.Fatalf("progress up to revision %d, acknowledged was %d", revision, newest)
	}
	now := maps.Clone(past[0].state)
	for i, commit := range commits {
		for _, c := range commit {
			s.noError("a follower", now.apply(c))
			if c.Revision <= past[i].revision || c.Revision > past[i+1].revision {
				s.Fatalf("a change between the revisions %d and %d has %d", past[i].revision, past[i+1].revision, c.Revision)
			}
		}
		sameRecords(s, fmt.Sprintf("the replay up to revision %d", past[i+1].revision), now.records(), past[i+1].state.records())
	}
}

func resourcesOf(records []history.Record) []*resourcepb.Resource {
	var all []*resourcepb.Resource
	for _, r := range records {
		all = append(all, r.Resource)
	}
	return all
}

// futureOffset is the distance of a future revision from the newest. It is large because some databases number the changes of
// all their stores together.
const futureOffset = 1_000_000_000

// recordOf reads the record of a resource that is stored.
func recordOf(s *suite, h history.Historian, id *resourcepb.ID) *history.Record {
	s.Helper()
	scan, err := h.Scan(s.ctx, history.Span{From: id, To: nextKey(id)}, history.ScanOptions{})
	s.noError("a scan of one resource", err)
	if len(scan.Records) != 1 {
		s.Fatalf("a scan of one resource: %d records", len(scan.Records))
	}
	return &scan.Records[0]
}
