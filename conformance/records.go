package conformance

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

func newestRevision(s *suite, h history.Historian) int64 {
	s.Helper()
	_, newest, err := h.Revisions(s.ctx)
	s.noError("Revisions", err)
	return newest
}

// scanAll reads a range in parts of limit records, all at the revision of the first.
func scanAll(s *suite, h history.Historian, span history.Range, opts history.ScanOptions) (records []history.Record, revision int64) {
	s.Helper()
	for {
		scan, err := h.Scan(s.ctx, span, opts)
		s.noError(fmt.Sprintf("Scan at revision %d", opts.Revision), err)
		if opts.Limit > 0 && len(scan.Records) > opts.Limit {
			s.Fatalf("a scan returned %d records, the limit is %d", len(scan.Records), opts.Limit)
		}
		if opts.Revision != 0 && scan.Revision != opts.Revision {
			s.Fatalf("a scan at revision %d reports revision %d", opts.Revision, scan.Revision)
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

// nextKey returns the first bound after an id. Names contain no NUL, so no key lies between.
func nextKey(id *resourcepb.ID) *resourcepb.ID {
	next := clone(id)
	next.Name += "\x01"
	return next
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

// followToNewest returns all changes of a follower up to the newest revision, as commits.
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

// futureOffset is the distance of a future revision from the newest. It is large because some databases number the changes of
// all their stores together.
const futureOffset = 1_000_000_000
