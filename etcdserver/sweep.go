package etcdserver

import (
	"context"
	"errors"
	"maps"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
)

// sweepResult is the result of a sweep. No key that remains was created before revision. If no key remains, revision is the
// revision of the last deletion; otherwise the sweep ignores keys created at or after that revision.
type sweepResult struct {
	deletions []*change
	revision  int64
}

// sweep deletes the keys that are in a range at a revision. It ignores keys created later, so a client that keeps creating keys cannot
// prevent it from finishing.
func (s *Server) sweep(ctx context.Context, r *pb.DeleteRangeRequest, revision int64) (sweepResult, error) {
	all := sweepResult{revision: revision}
	span, ok := requestRange(r.Key, r.RangeEnd)
	last := revision
	for more := ok; more; {
		scan, err := s.history.Scan(ctx, span, history.ScanOptions{Revision: revision, Limit: s.commits.MaxOps()})
		if errors.Is(err, storage.ErrCompacted) && ctx.Err() == nil { // the revision is compacted: a later one works as well
			if _, revision, err = s.history.Revisions(ctx); err == nil {
				all.revision = revision
				continue
			}
		}
		if err != nil {
			return all, err
		}
		deleted, at, err := s.deleteAll(ctx, scan.Records, revision)
		all.deletions, last = append(all.deletions, deleted...), max(last, at)
		if err != nil {
			return all, err
		}
		more, span = scan.More, scan.Rest
	}
	if len(all.deletions) == 0 {
		return all, nil
	}
	span, _ = requestRange(r.Key, r.RangeEnd)
	remaining, err := s.history.Scan(ctx, span, history.ScanOptions{Revision: last, Limit: 1, KeysOnly: true})
	if err == nil && len(remaining.Records) == 0 {
		all.revision = last
	}
	if errors.Is(err, storage.ErrCompacted) {
		err = nil
	}
	return all, err
}

// deleteAll deletes keys that were read at a revision, in one commit if none of them has changed since, and returns the deleted ones. It
// ignores a key that was created anew.
func (s *Server) deleteAll(ctx context.Context, read []history.Record, at int64) (deleted []*change, last int64, err error) {
	batch := commit{after: at, keys: map[string]*change{}}
	for i := range read {
		one := &change{id: read[i].Resource.GetId(), before: &read[i], delete: true}
		key := string(keyOf(one.id))
		batch.keys[key], batch.order = one, append(batch.order, key)
	}
	if len(read) > 1 {
		last, err = batch.run(ctx, s)
		switch {
		case err == nil:
			return slices.Collect(maps.Values(batch.keys)), last, nil
		case !errors.Is(err, errConcurrentChange):
			return nil, last, err
		}
	}
	for _, key := range batch.order {
		one := batch.keys[key]
		for one.before != nil && one.before.Created <= at {
			swapped, err := s.history.Swap(ctx, history.Swap{Delete: one.id, Expect: one.before.Modified})
			if err != nil {
				return deleted, last, err
			}
			if one.before = swapped.Stored; swapped.Done {
				deleted, last = append(deleted, one), swapped.Revision
				break
			}
		}
	}
	return deleted, last, nil
}
