package conformance

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"slices"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

var historianCases = topic{"Historian", []testCase{
	{name: "ScanBytes", needs: needHistorian, run: historianScanBytes},
	{name: "Spans", needs: needHistorian, run: historianSpans},
	{name: "PartOfACommit", needs: needHistorian | needTransactor, run: historianPartOfACommit},
	{name: "BadInput", needs: needHistorian, run: historianBadInput},
	{name: "Compact", needs: needHistorian | needCompact, run: historianCompact},
	{name: "CompactBesideReaders", needs: needHistorian | needCompact | needPager, run: historianCompactBeside},
}}

// historianScanBytes checks that a scan ends at the requested number of bytes, below and above the default.
func historianScanBytes(s *suite) {
	h := s.historian()
	const all = 6
	for i := range all {
		s.write(withSize(newThing(fmt.Sprint("large-", i)), 900<<10))
	}
	for _, revision := range []int64{0, newestRevision(s, h)} {
		for size, want := range map[int]int{1: 1, 1000 << 10: 2, math.MaxInt: all} {
			scan, err := h.Scan(s.ctx, history.Range{}, history.ScanOptions{Revision: revision, Bytes: size, Count: true})
			s.noError("Scan", err)
			if len(scan.Records) != want || scan.More != (want < all) || scan.Count != all {
				s.Fatalf("%d bytes at revision %d of %d times 900 KiB: %d records, count %d, more %v",
					size, revision, all, len(scan.Records), scan.Count, scan.More)
			}
		}
		if scan, err := h.Scan(s.ctx, history.Range{}, history.ScanOptions{Revision: revision}); err != nil || !scan.More {
			s.Fatalf("6 times 900 KiB at revision %d are more than 4 MiB: %d records, more %v, %v", revision, len(scan.Records), scan.More, err)
		}
	}
}

// historianSpans checks that bounds are compared like the bytes of keys, whatever they contain.
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
	_, err := h.Scan(s.ctx, history.Range{From: thingID(strings.Repeat("l", 257))}, history.ScanOptions{})
	s.wantError("a bound that is too long", err, storage.ErrInvalid)
	for i := range all {
		for _, j := range []int{i, min(i+1, len(all)-1), len(all) - 1, mathrand.IntN(len(all))} {
			records, _ := scanAll(s, h, history.Range{From: all[i].Id, To: all[j].Id}, history.ScanOptions{Limit: 1 + i%5})
			var got []*resourcepb.Resource
			for _, r := range records {
				got = append(got, r.Resource)
			}
			s.equalLists(fmt.Sprintf("from %v to %v", all[i].Id, all[j].Id), got, all[i:max(i, j)])
		}
	}
}

// historianPartOfACommit checks a follower whose range has only one key of a commit: the first, one in the middle, the last. The other keys have
// another kind, so that a backend may filter them out.
func historianPartOfACommit(s *suite) {
	h := s.historian()
	for _, at := range []int{0, 1, 2} {
		var ops []storage.Op
		for i := range 3 {
			res := newThing(fmt.Sprintf("part-%d", at))
			if i != at {
				res.Id.Type.Kind, res.Id.Name = "Other", fmt.Sprintf("part-%d-%d", at, i)
			}
			ops = append(ops, storage.Op{Write: res})
		}
		before, keys := newestRevision(s, h), history.Range{From: ops[at].Write.Id, To: nextKey(ops[at].Write.Id)}
		f, err := h.Follow(s.ctx, keys, before)
		s.noError("Follow", err)
		defer f.Close()
		_, err = s.transactor().Commit(s.ctx, ops)
		s.noError("Commit", err)
		changes, revision := nextCommit(s, f)
		if len(changes) != 1 {
			s.Fatalf("%d changes came with revision %d, expected one: %+v", len(changes), revision, changes)
		}
		if more, last := followToNewest(s, f); len(more) > 0 || last < revision {
			s.Fatalf("after revision %d, %d more commits and a bookmark at revision %d came", revision, len(more), last)
		}
		if records, _ := scanAll(s, h, keys, history.ScanOptions{Revision: revision}); len(records) != 1 {
			s.Fatalf("a change came with revision %d, but the scan at that revision has %d records", revision, len(records))
		}
		again, err := h.Follow(s.ctx, keys, revision)
		s.noError("Follow", err)
		defer again.Close()
		if repeated, _ := followToNewest(s, again); len(repeated) > 0 {
			s.Fatalf("a follower from revision %d returned the change that had come with it: %+v", revision, repeated)
		}
	}
}

func historianBadInput(s *suite) {
	h := s.historian()
	s.create("one")
	newest := newestRevision(s, h)
	_, err := h.Scan(s.ctx, history.Range{}, history.ScanOptions{Revision: newest + futureOffset})
	s.wantError("Scan at a revision to come", err, storage.ErrFutureRevision)
	_, err = h.Follow(s.ctx, history.Range{}, newest+futureOffset)
	s.wantError("Follow from a revision to come", err, storage.ErrFutureRevision)
	s.wantError("Compact at a revision to come", h.Compact(s.ctx, newest+futureOffset), storage.ErrFutureRevision)
	if pager, ok := storage.As[storage.Pager](s.b); ok {
		_, err = pager.ListPage(s.ctx, anything, anywhere, "", storage.ListOptions{Revision: newest + futureOffset})
		s.wantError("ListPage at a revision to come", err, storage.ErrFutureRevision)
		_, err = pager.ListPage(s.ctx, anything, anywhere, "", storage.ListOptions{Revision: -1})
		s.wantError("ListPage at a negative revision", err, storage.ErrInvalid)
	}
	for what, call := range map[string]func() error{
		"a negative revision": func() error { _, err := h.Scan(s.ctx, history.Range{}, history.ScanOptions{Revision: -1}); return err },
		"negative bytes":      func() error { _, err := h.Scan(s.ctx, history.Range{}, history.ScanOptions{Bytes: -1}); return err },
		"a negative limit":    func() error { _, err := h.Scan(s.ctx, history.Range{}, history.ScanOptions{Limit: -1}); return err },
		"a bound with a NUL": func() error {
			_, err := h.Scan(s.ctx, history.Range{From: thingID("a\x00b")}, history.ScanOptions{})
			return err
		},
		"following from nothing": func() error { _, err := h.Follow(s.ctx, history.Range{}, 0); return err },
		"compacting nothing":     func() error { return h.Compact(s.ctx, 0) },
		"a swap of nothing":      func() error { _, err := h.Swap(s.ctx, history.Swap{}); return err },
		"a swap that is two": func() error {
			_, err := h.Swap(s.ctx, history.Swap{Write: newThing("a"), Delete: thingID("a")})
			return err
		},
		"a swap at less than none": func() error { _, err := h.Swap(s.ctx, history.Swap{Write: newThing("a"), Expect: -1}); return err },
		"a swap without a uid": func() error {
			_, err := h.Swap(s.ctx, history.Swap{Write: newResource(withUid(thingID("a"), ""))})
			return err
		},
	} {
		s.wantError(what, call(), storage.ErrInvalid)
	}
	large := newThing("large")
	large.Data.Value = make([]byte, s.h.MaxSize)
	_, err = h.Swap(s.ctx, history.Swap{Write: large})
	s.wantError("a swap of a resource that is too large", err, storage.ErrTooLarge)
}
