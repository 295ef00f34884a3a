package etcdserver

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/ashlar-dev/storage"
)

// DeleteRange implements etcd's KV service. It deletes every key that was in the range before the call. Of the keys created meanwhile, it
// deletes only those with a revision up to the revision in the response. The deletions have several revisions if there are more keys than a
// transaction of the store allows, or if other clients change keys meanwhile.
func (s *Server) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	if len(r.RangeEnd) == 0 {
		lock, release, err := s.keyLocks.acquire(ctx, string(r.Key))
		if err != nil {
			return nil, toStatus(ctx, err)
		}
		defer release()
		lock.last = nil
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
	if err != nil && len(all.deletions) > 0 {
		err = fmt.Errorf("%w: %d keys were deleted, but not all: %s", storage.ErrInconsistent, len(all.deletions), err.Error())
	}
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	answer := &pb.DeleteRangeResponse{Header: header(all.revision), Deleted: int64(len(all.deletions))}
	if r.PrevKv {
		for _, one := range all.deletions {
			answer.PrevKvs = append(answer.PrevKvs, pair(one.before))
		}
		slices.SortFunc(answer.PrevKvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	}
	return answer, nil
}
