package etcdserver

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
)

// DeleteRange implements etcd's KV service. Every key that the range had before the call is deleted, and of what is created meanwhile only
// what has a revision up to that of the answer. The deletions of more keys than a transaction of the store takes, and of keys that others
// change meanwhile, have several revisions.
func (s *Server) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	if len(r.RangeEnd) == 0 {
		turn, over, err := s.keyLocks.acquire(ctx, string(r.Key))
		if err != nil {
			return nil, toStatus(ctx, err)
		}
		defer over()
		turn.last = nil
		one := &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
		answer, err := s.transact(ctx, &pb.TxnRequest{Success: []*pb.RequestOp{one}})
		if err != nil {
			return nil, toStatus(ctx, err)
		}
		deleted := answer.Responses[0].GetResponseDeleteRange()
		deleted.Header = answer.Header
		return deleted, nil
	}
	_, newest, err := s.history.Revisions(ctx)
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	all, err := s.sweep(ctx, r, newest)
	if err != nil && len(all.deleted) > 0 {
		err = fmt.Errorf("%w: %d keys were deleted, but not all: %s", storage.ErrInconsistent, len(all.deleted), err.Error())
	}
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	answer := &pb.DeleteRangeResponse{Header: header(all.revision), Deleted: int64(len(all.deleted))}
	if r.PrevKv {
		for _, one := range all.deleted {
			answer.PrevKvs = append(answer.PrevKvs, pair(one.before))
		}
		slices.SortFunc(answer.PrevKvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	}
	return answer, nil
}

// sweepResult is what a sweep has deleted. The revision is one that is not after the creation of any key that is left: that of the last deletion
// if nothing is left, and otherwise that from which on the sweep spares what is created.
type sweepResult struct {
	deleted  []*change
	revision int64
}

// sweep deletes the keys that a range has at a revision. Those that are created later are spared: whoever creates keys all the time does
// not keep it from its end.
func (s *Server) sweep(ctx context.Context, r *pb.DeleteRangeRequest, revision int64) (sweepResult, error) {
	all := sweepResult{revision: revision}
	span, ok := requestRange(r.Key, r.RangeEnd)
	last := revision
	for more := ok; more; {
		scan, err := s.history.Scan(ctx, span, history.ScanOptions{Revision: revision, Limit: s.commits.MaxOps()})
		if errors.Is(err, storage.ErrCompacted) && ctx.Err() == nil { // nothing is known of that revision any more: a later one will do
			if _, revision, err = s.history.Revisions(ctx); err == nil {
				all.revision = revision
				continue
			}
		}
		if err != nil {
			return all, err
		}
		deleted, at, err := s.deleteAll(ctx, scan.Records, revision)
		if err != nil {
			return all, err
		}
		all.deleted, last = append(all.deleted, deleted...), max(last, at)
		more, span = scan.More, scan.Rest
	}
	if len(all.deleted) == 0 {
		return all, nil
	}
	span, _ = requestRange(r.Key, r.RangeEnd)
	left, err := s.history.Scan(ctx, span, history.ScanOptions{Revision: last, Limit: 1, KeysOnly: true})
	if err == nil && len(left.Records) == 0 {
		all.revision = last
	}
	if errors.Is(err, storage.ErrCompacted) {
		err = nil
	}
	return all, err
}

// deleteAll deletes keys that were read at a revision, together if nobody has changed one of them since, and returns those that it has
// deleted. One that was created anew is spared.
func (s *Server) deleteAll(ctx context.Context, read []history.Record, at int64) (deleted []*change, last int64, err error) {
	together := commit{after: at, keys: map[string]*change{}}
	for i := range read {
		one := &change{id: read[i].Resource.GetId(), before: &read[i], delete: true}
		key := string(keyOf(one.id))
		together.keys[key], together.order = one, append(together.order, key)
	}
	if len(read) > 1 {
		last, err = together.run(ctx, s)
		if !errors.Is(err, errConcurrentChange) {
			return slices.Collect(maps.Values(together.keys)), last, err
		}
	}
	for _, key := range together.order {
		one := together.keys[key]
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
