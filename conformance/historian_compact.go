package conformance

import (
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

func historianCompact(s *suite) {
	h := s.historian()
	stored := s.create("kept")
	lost := s.create("lost")
	early := newestRevision(s, h)
	s.delete(lost)
	s.update(stored)
	afterUpdate := resumable(s)
	records, middle := scanAll(s, h, history.Range{}, history.ScanOptions{})
	later := s.create("later")
	newest, afterLater := newestRevision(s, h), resumable(s)

	s.noError("Compact", h.Compact(s.ctx, middle))
	oldest, stays, err := h.Revisions(s.ctx)
	s.noError("Revisions", err)
	if oldest != middle || stays < newest {
		s.Fatalf("compacted up to revision %d of %d, the revisions are %d to %d", middle, newest, oldest, stays)
	}
	for _, revision := range []int64{early, middle - 1} {
		_, err := h.Scan(s.ctx, history.Range{}, history.ScanOptions{Revision: revision})
		s.wantError(fmt.Sprintf("Scan at revision %d, compacted to %d", revision, middle), err, storage.ErrCompacted)
		s.wantError(fmt.Sprintf("Follow from revision %d, compacted to %d", revision, middle), followError(s, h, revision), storage.ErrCompacted)
	}
	got, _ := scanAll(s, h, history.Range{}, history.ScanOptions{Revision: middle})
	sameRecords(s, "the scan at the compacted revision", got, records)
	f, err := h.Follow(s.ctx, history.Range{}, middle)
	s.noError("Follow from the compacted revision", err)
	defer f.Close()
	commits, _ := followToNewest(s, f)
	if len(commits) != 1 || commits[0][0].New.Resource.Id.Name != "later" {
		s.Fatalf("after the compacted revision: %+v", commits)
	}
	if s.h.NoResumer == "" {
		s.expectUpsert(s.resume(afterUpdate, allFilter), later)
	}
	// The oldest revision does not decrease.
	s.noError("Compact once more", h.Compact(s.ctx, middle))
	s.noError("Compact of less", h.Compact(s.ctx, early))
	if oldest, _, err = h.Revisions(s.ctx); err != nil || oldest != middle {
		s.Fatalf("the oldest revision is %d after a compaction of less than %d, %v", oldest, middle, err)
	}
	s.noError("Compact of all", h.Compact(s.ctx, newest))
	if n := len(s.list(anything, anywhere, "")); n != 2 {
		s.Fatalf("%d resources are left", n)
	}
	again := s.create("lost")
	if s.h.NoResumer == "" {
		s.expectUpsert(s.resume(afterLater, allFilter), again)
	}
	scan, err := h.Scan(s.ctx, history.Range{From: again.Id, To: nextKey(again.Id)}, history.ScanOptions{})
	s.noError("Scan", err)
	if r := scan.Records[0]; r.Writes != 1 || r.Created != r.Modified || r.Modified <= newest {
		s.Fatalf("created after a compaction to %d: %s", newest, recordText(r))
	}
}

// resumable returns a cursor after all changes.
func resumable(s *suite) string {
	s.Helper()
	w := s.watch(anything, anywhere, "")
	defer w.Close()
	s.snapshot(w)
	return w.Cursor()
}

// followError returns the error of a follower from a compacted revision.
func followError(s *suite, h history.Historian, revision int64) error {
	s.Helper()
	f, err := h.Follow(s.ctx, history.Range{}, revision)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Bookmark(s.ctx); err != nil {
		return err
	}
	ctx, cancel := s.timeoutContext()
	defer cancel()
	changes, upTo, err := f.Next(ctx)
	if err == nil {
		s.Fatalf("a follower from revision %d, which is compacted, returned %d changes up to %d", revision, len(changes), upTo)
	}
	return err
}

// historianCompactBeside compacts while followers, a listing and the snapshot of a watch are unfinished. Their results are
// right, or storage.ErrCompacted.
func historianCompactBeside(s *suite) {
	h, pager := s.historian(), s.pager()
	heavy := createLarge(s)
	w := s.watch(things, home, "heavy-")
	s.expectUpsert(w, heavy[0])
	changeTheEnd(s, heavy)
	s.noError("Compact", h.Compact(s.ctx, newestRevision(s, h)))
	restOrCompacted(s, w, heavy[1:])
	all := createMany(s, 9)
	names := filter{things, home, "name-"}
	page := s.page(pager, names, storage.ListOptions{Consistency: strong, Limit: 2})
	at := newestRevision(s, h)
	f, err := h.Follow(s.ctx, history.Range{}, at)
	s.noError("Follow", err)
	defer f.Close()
	idle, err := h.Follow(s.ctx, history.Range{From: thingID("x"), To: thingID("y")}, at)
	s.noError("Follow", err)
	defer idle.Close()
	changeAround(s, all)
	s.noError("Compact", h.Compact(s.ctx, newestRevision(s, h)))

	opts := storage.ListOptions{Consistency: strong, Continue: page.Continue}
	rest, err := pager.ListPage(s.ctx, names.typ, names.tenancy, names.prefix, opts)
	if err == nil {
		s.equalLists("a page after a compaction", append(page.Resources, rest.Resources...), all[:len(page.Resources)+len(rest.Resources)])
	} else if !errors.Is(err, storage.ErrCompacted) {
		s.Fatalf("a page after a compaction: %v", err)
	}
	for _, f := range []history.Follower{f, idle} {
		last := at
		succeedsOrCompacted(s, "Bookmark", f.Bookmark(s.ctx))
		for {
			ctx, cancel := s.timeoutContext()
			changes, revision, err := f.Next(ctx)
			cancel()
			if err != nil {
				succeedsOrCompacted(s, "a follower beside a compaction", err)
				break
			}
			for _, c := range changes {
				if c.Revision <= last {
					s.Fatalf("a change of revision %d after %d", c.Revision, last)
				}
			}
			if last = revision; len(changes) == 0 {
				break
			}
		}
	}
	f, err = h.Follow(s.ctx, history.Range{}, newestRevision(s, h))
	s.noError("Follow", err)
	defer f.Close()
	s.create("after all")
	if commits, _ := followToNewest(s, f); len(commits) != 1 {
		s.Fatalf("%d commits after a compaction, expected one", len(commits))
	}
}

// restOrCompacted reads the rest of a snapshot, which must be want, to its end or to storage.ErrCompacted.
func restOrCompacted(s *suite, w storage.Watch, want []*resourcepb.Resource) {
	s.Helper()
	for {
		ctx, cancel := s.timeoutContext()
		ev, err := w.Next(ctx)
		cancel()
		switch {
		case errors.Is(err, storage.ErrCompacted) && errors.Is(err, storage.ErrWatchClosed):
			return
		case err != nil:
			s.Fatalf("a snapshot beside a compaction: %v", err)
		case len(want) == 0:
			if ev.GetEndOfSnapshot() == nil {
				s.Fatalf("a snapshot after a compaction continues with %s", shortText(ev))
			}
			return
		}
		s.equal("a snapshot beside a compaction", ev, upsertEvent(want[0]))
		want = want[1:]
	}
}

func succeedsOrCompacted(s *suite, what string, err error) {
	s.Helper()
	if err != nil && !errors.Is(err, storage.ErrCompacted) {
		s.Fatalf("%s: %v", what, err)
	}
}
