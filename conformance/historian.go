package conformance

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"maps"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

var historianCases = topic{"Historian", []testCase{
	{name: "Empty", needs: needHistorian, run: historianEmpty},
	{name: "ScanAtEveryRevision", needs: needHistorian | needTransactor, run: historianScans},
	{name: "ScanOptions", needs: needHistorian, run: historianScanOptions},
	{name: "ScanBytes", needs: needHistorian, run: historianScanBytes},
	{name: "Spans", needs: needHistorian, run: historianSpans},
	{name: "BadInput", needs: needHistorian, run: historianBadInput},
	{name: "Swap", needs: needHistorian, run: historianSwap},
	{name: "SwapsAtTheSameTime", needs: needHistorian | needAnother, run: historianSwaps},
	{name: "Follow", needs: needHistorian | needTransactor, run: historianFollow},
	{name: "FollowSpan", needs: needHistorian | needTransactor, run: historianFollowSpan},
	{name: "UnderLoad", needs: needHistorian | needTransactor | needAnother, run: historianUnderLoad},
	{name: "Restart", needs: needHistorian | needAnother | needTransactor, run: historianRestart},
	{name: "PagesAtARevision", needs: needHistorian | needPager | needTransactor, run: historianPages},
	{name: "PagesInAnyHandle", needs: needHistorian | needPager | needAnother, run: historianAnyHandle},
	{name: "Recall", needs: needHistorian | needTransactor, run: historianRecall},
	{name: "Compact", needs: needHistorian | needCompact, run: historianCompact},
	{name: "CompactBesideReaders", needs: needHistorian | needCompact | needPager, run: historianCompactBeside},
}}

// historian returns s.b's history.
func (s *suite) historian() storage.Historian {
	s.Helper()
	return s.historianOf(s.b)
}

func (s *suite) historianOf(b storage.Backend) storage.Historian {
	s.Helper()
	h, ok := storage.As[storage.Historian](b)
	if !ok {
		s.Fatal("the backend is no storage.Historian")
	}
	return h
}

func newestRevision(s *suite, h storage.Historian) int64 {
	s.Helper()
	_, newest, err := h.Revisions(s.ctx)
	s.succeeds("Revisions", err)
	return newest
}

// scanAll reads a span in parts of limit records, all at the revision of the first.
func scanAll(s *suite, h storage.Historian, span storage.Span, opts storage.ScanOptions) (records []storage.Record, revision int64) {
	s.Helper()
	for {
		scan, err := h.Scan(s.ctx, span, opts)
		s.succeeds(fmt.Sprintf("Scan at revision %d", opts.Revision), err)
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

// after is the first bound behind an id: names hold no NUL, so none lies between.
func after(id *resourcepb.ID) *resourcepb.ID {
	next := clone(id)
	next.Name += "\x01"
	return next
}

// state is what a store holds, by key.
type state map[string]storage.Record

func stateOf(records []storage.Record) state {
	st := make(state, len(records))
	for _, r := range records {
		st[keyOf(r.Resource.Id)] = r
	}
	return st
}

func (st state) sorted() []storage.Record {
	records := make([]storage.Record, 0, len(st))
	for _, k := range slices.Sorted(maps.Keys(st)) {
		records = append(records, st[k])
	}
	return records
}

// apply changes the state as a change says, and holds what it says about the state before against it.
func (st state) apply(c storage.Change) error {
	record := cmp.Or(c.Now, c.Before)
	if record == nil {
		return fmt.Errorf("the change of revision %d has neither Now nor Before", c.Revision)
	}
	k := keyOf(record.Resource.Id)
	was, there := st[k]
	switch {
	case !there && c.Before != nil:
		return fmt.Errorf("revision %d: nothing was stored before, it says %s", c.Revision, text(c.Before.Resource))
	case there && c.Before == nil:
		return fmt.Errorf("revision %d: no state before, stored was %s", c.Revision, text(was.Resource))
	case there:
		if err := sameRecord(*c.Before, was); err != nil {
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

func sameRecord(got, want storage.Record) error {
	if !proto.Equal(got.Resource, want.Resource) || got.Created != want.Created || got.Modified != want.Modified || got.Writes != want.Writes {
		return fmt.Errorf("\n got %s\nwant %s", recordText(got), recordText(want))
	}
	return nil
}

func recordText(r storage.Record) string {
	return fmt.Sprintf("created %d, modified %d, writes %d: %s", r.Created, r.Modified, r.Writes, text(r.Resource))
}

func sameRecords(s *suite, what string, got, want []storage.Record) {
	s.Helper()
	for i := range max(len(got), len(want)) {
		switch {
		case i >= len(got):
			s.Fatalf("%s: %d records instead of %d: missing is %s", what, len(got), len(want), recordText(want[i]))
		case i >= len(want):
			s.Fatalf("%s: %d records instead of %d: too many is %s", what, len(got), len(want), recordText(got[i]))
		}
		if err := sameRecord(got[i], want[i]); err != nil {
			s.Fatalf("%s: record %d: %v", what, i, err)
		}
	}
}

// moment is a store as it was when its newest change had a revision.
type moment struct {
	revision int64
	state    state
}

// live makes n changes, of every kind and on few keys, one after the other, and returns the moments after each, that of the beginning
// before them.
func randomWrites(s *suite, h storage.Historian, n int) []moment {
	s.Helper()
	transactor, ok := storage.As[storage.Transactor](s.b)
	if !ok {
		s.Fatal("the backend is no storage.Transactor")
	}
	records, revision := scanAll(s, h, storage.Span{}, storage.ScanOptions{})
	past := []moment{{revision, stateOf(records)}}
	for i := range n {
		now := maps.Clone(past[i].state)
		names := []string{fmt.Sprint("key-", mathrand.IntN(5)), fmt.Sprint("other-", mathrand.IntN(3))}
		what := randomWrite(s, h, transactor, now, names, i)
		past = append(past, moment{newestRevision(s, h), now})
		checkRevision(s, h, what, past[i], past[i+1], names)
	}
	return past
}

// liveOnce makes one change, or one transaction of two, and puts its resources into the state, without numbers.
func randomWrite(s *suite, h storage.Historian, transactor storage.Transactor, now state, names []string, i int) string {
	s.Helper()
	next := func(name string) (*resourcepb.Resource, bool) {
		was, there := now[keyOf(thingID(name))]
		if !there {
			return newThing(name), false
		}
		return changed(was.Resource), true
	}
	put := func(res *resourcepb.Resource) { now[keyOf(res.Id)] = storage.Record{Resource: res} }
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
		swapped, err := h.Swap(s.ctx, storage.Swap{Delete: res.Id, Expect: was.Modified})
		s.succeeds("Swap", err)
		checkSwapped(s, swapped, was.Modified)
		delete(now, keyOf(res.Id))
		return "Swap"
	case what == 3:
		swapped, err := h.Swap(s.ctx, storage.Swap{Write: res, Expect: was.Modified})
		s.succeeds("Swap", err)
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
	s.succeeds("Commit", err)
	put(written[0])
	if ops[1].Write != nil {
		put(written[1])
	} else {
		delete(now, keyOf(res.Id))
	}
	return "Commit"
}

func checkSwapped(s *suite, swapped storage.Swapped, expected int64) {
	s.Helper()
	if !swapped.Done || swapped.Stored == nil {
		s.Fatalf("Swap at the revision %d that is stored: %+v", expected, swapped)
	}
}

// numbered reads the numbers of what has changed between two moments, and holds them against what they have to be.
func checkRevision(s *suite, h storage.Historian, what string, before, now moment, names []string) {
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
		records, _ := scanAll(s, h, storage.Span{From: id, To: after(id)}, storage.ScanOptions{Revision: now.revision})
		if len(records) != 1 {
			s.Fatalf("after %s a scan of one key finds %d records", what, len(records))
		}
		got := records[0]
		is.Modified, is.Created, is.Writes = got.Modified, got.Modified, 1
		if was.Resource != nil {
			is.Created, is.Writes = was.Created, was.Writes+1
		}
		if err := sameRecord(got, is); err != nil {
			s.Fatalf("after %s: %v", what, err)
		}
		if got.Modified <= before.revision || got.Modified > now.revision {
			s.Fatalf("%s between the revisions %d and %d has %d", what, before.revision, now.revision, got.Modified)
		}
		now.state[keyOf(id)] = is
	}
}

func historianEmpty(s *suite) {
	h := s.historian()
	oldest, newest, err := h.Revisions(s.ctx)
	s.succeeds("Revisions", err)
	if oldest < 1 || newest < oldest {
		s.Fatalf("an empty store has revisions from %d to %d", oldest, newest)
	}
	scan, err := h.Scan(s.ctx, storage.Span{}, storage.ScanOptions{Revision: newest, Count: true})
	s.succeeds("Scan", err)
	if len(scan.Records) > 0 || scan.Count > 0 || scan.More || scan.Revision != newest {
		s.Fatalf("a scan of an empty store: %+v", scan)
	}
	f, err := h.Follow(s.ctx, storage.Span{}, newest)
	s.succeeds("Follow", err)
	defer f.Close()
	nextProgress(s, f)
	stored := s.create("first")
	changes, revision := nextCommit(s, f)
	if len(changes) != 1 || changes[0].Now == nil || changes[0].Revision <= newest || revision < changes[0].Revision {
		s.Fatalf("the first change after revision %d: %+v, up to %d", newest, changes, revision)
	}
	s.same("the first change", changes[0].Now.Resource, stored)
}

// historianScans: the state at every revision is what it was then, on any handle, as often as it is read.
func historianScans(s *suite) {
	h := s.historian()
	past := randomWrites(s, h, s.scale(40))
	handles := []storage.Historian{h}
	if s.h.OneHandle == "" {
		handles = append(handles, s.historianOf(s.another()))
	}
	for _, h := range handles {
		for range 2 {
			for i, m := range past {
				got, _ := scanAll(s, h, storage.Span{}, storage.ScanOptions{Revision: m.revision, Limit: i % 4})
				sameRecords(s, fmt.Sprintf("the scan at revision %d", m.revision), got, m.state.sorted())
			}
		}
	}
}

func historianScanOptions(s *suite) {
	h := s.historian()
	all := createMany(s, 7)
	before := newestRevision(s, h)
	s.delete(all[3])
	scan, err := h.Scan(s.ctx, storage.Span{}, storage.ScanOptions{Revision: before, Limit: 2, Count: true})
	s.succeeds("Scan", err)
	if len(scan.Records) != 2 || scan.Count != 7 || !scan.More {
		s.Fatalf("2 of 7 at revision %d: %d records, count %d, more %v", before, len(scan.Records), scan.Count, scan.More)
	}
	scan, err = h.Scan(s.ctx, storage.Span{}, storage.ScanOptions{Count: true, KeysOnly: true})
	s.succeeds("Scan", err)
	if len(scan.Records) != 6 || scan.Count != 6 || scan.More {
		s.Fatalf("the keys of 6: %d records, count %d, more %v", len(scan.Records), scan.Count, scan.More)
	}
	for i, r := range scan.Records {
		want := append(all[:3:3], all[4:]...)[i]
		if keyOf(r.Resource.Id) != keyOf(want.Id) || r.Resource.Version != want.Version || r.Resource.Data != nil || r.Modified == 0 {
			s.Fatalf("key %d: %s", i, recordText(r))
		}
	}
	if scan, err = h.Scan(s.ctx, storage.Span{}, storage.ScanOptions{Limit: 6}); err != nil || scan.More || len(scan.Records) != 6 {
		s.Fatalf("6 of 6: %d records, more %v, %v", len(scan.Records), scan.More, err)
	}
}

// historianScanBytes: a scan ends at as many bytes as it is asked for, be they more or less than usual.
func historianScanBytes(s *suite) {
	h := s.historian()
	const all = 6
	for i := range all {
		s.write(sized(newThing(fmt.Sprint("large-", i)), 900<<10))
	}
	for _, revision := range []int64{0, newestRevision(s, h)} {
		for size, want := range map[int]int{1: 1, 1000 << 10: 2, math.MaxInt: all} {
			scan, err := h.Scan(s.ctx, storage.Span{}, storage.ScanOptions{Revision: revision, Bytes: size, Count: true})
			s.succeeds("Scan", err)
			if len(scan.Records) != want || scan.More != (want < all) || scan.Count != all {
				s.Fatalf("%d bytes at revision %d of %d times 900 KiB: %d records, count %d, more %v",
					size, revision, all, len(scan.Records), scan.Count, scan.More)
			}
		}
		if scan, err := h.Scan(s.ctx, storage.Span{}, storage.ScanOptions{Revision: revision}); err != nil || !scan.More {
			s.Fatalf("6 times 900 KiB at revision %d are more than 4 MiB: %d records, more %v, %v", revision, len(scan.Records), scan.More, err)
		}
	}
}

// historianSpans: bounds are compared as the bytes of keys are, whatever they hold.
func historianSpans(s *suite) {
	h := s.historian()
	var all []*resourcepb.Resource
	for _, name := range []string{"a", "a!", "a-b", "a/b", "aa", "ab", "á", "b", "\U0010ffff", "A", rand.Text(), strings.Repeat("l", 255)} {
		for _, namespace := range []string{"", "n", "n!", "n/"} {
			res := newThing(name)
			res.Id.Tenancy.Namespace = namespace
			all = append(all, s.write(res))
		}
	}
	slices.SortFunc(all, func(x, y *resourcepb.Resource) int { return cmp.Compare(keyOf(x.Id), keyOf(y.Id)) })
	_, err := h.Scan(s.ctx, storage.Span{From: thingID(strings.Repeat("l", 257))}, storage.ScanOptions{})
	s.fails("a bound that is too long", err, storage.ErrInvalid)
	for i := range all {
		for _, j := range []int{i, min(i+1, len(all)-1), len(all) - 1, mathrand.IntN(len(all))} {
			records, _ := scanAll(s, h, storage.Span{From: all[i].Id, To: all[j].Id}, storage.ScanOptions{Limit: 1 + i%5})
			var got []*resourcepb.Resource
			for _, r := range records {
				got = append(got, r.Resource)
			}
			s.sameList(fmt.Sprintf("from %v to %v", all[i].Id, all[j].Id), got, all[i:max(i, j)])
		}
	}
}

// farAhead is how far a revision to come lies beyond the newest: in a database that numbers the changes of all its stores together, others
// write on meanwhile.
const farAhead = 1_000_000_000

func historianBadInput(s *suite) {
	h := s.historian()
	s.create("one")
	newest := newestRevision(s, h)
	_, err := h.Scan(s.ctx, storage.Span{}, storage.ScanOptions{Revision: newest + farAhead})
	s.fails("Scan at a revision to come", err, storage.ErrFutureRevision)
	_, err = h.Follow(s.ctx, storage.Span{}, newest+farAhead)
	s.fails("Follow from a revision to come", err, storage.ErrFutureRevision)
	s.fails("Compact at a revision to come", h.Compact(s.ctx, newest+farAhead), storage.ErrFutureRevision)
	for what, call := range map[string]func() error{
		"a negative revision": func() error { _, err := h.Scan(s.ctx, storage.Span{}, storage.ScanOptions{Revision: -1}); return err },
		"negative bytes":      func() error { _, err := h.Scan(s.ctx, storage.Span{}, storage.ScanOptions{Bytes: -1}); return err },
		"a negative limit":    func() error { _, err := h.Scan(s.ctx, storage.Span{}, storage.ScanOptions{Limit: -1}); return err },
		"a bound with a NUL": func() error {
			_, err := h.Scan(s.ctx, storage.Span{From: thingID("a\x00b")}, storage.ScanOptions{})
			return err
		},
		"following from nothing": func() error { _, err := h.Follow(s.ctx, storage.Span{}, 0); return err },
		"compacting nothing":     func() error { return h.Compact(s.ctx, 0) },
		"a swap of nothing":      func() error { _, err := h.Swap(s.ctx, storage.Swap{}); return err },
		"a swap that is two": func() error {
			_, err := h.Swap(s.ctx, storage.Swap{Write: newThing("a"), Delete: thingID("a")})
			return err
		},
		"a swap at less than none": func() error { _, err := h.Swap(s.ctx, storage.Swap{Write: newThing("a"), Expect: -1}); return err },
		"a swap without a uid": func() error {
			_, err := h.Swap(s.ctx, storage.Swap{Write: newResource(withUid(thingID("a"), ""))})
			return err
		},
	} {
		s.fails(what, call(), storage.ErrInvalid)
	}
	large := newThing("large")
	large.Data.Value = make([]byte, s.h.MaxSize)
	_, err = h.Swap(s.ctx, storage.Swap{Write: large})
	s.fails("a swap of what is too large", err, storage.ErrTooLarge)
}
