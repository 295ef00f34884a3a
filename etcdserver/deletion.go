package etcdserver

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// DeleteRange implements etcd's KV service. When it returns, there was a moment at which the range was empty. What it deleted may have
// several revisions: a step takes no more keys than a transaction of the store, and others may create some meanwhile.
func (s *Server) DeleteRange(ctx context.Context, r *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	if len(r.Key) == 0 {
		return nil, rpctypes.ErrGRPCEmptyKey
	}
	step := &pb.TxnRequest{Success: []*pb.RequestOp{{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}}}
	all := &pb.DeleteRangeResponse{}
	for {
		answer, err := s.transact(ctx, step, s.commits.MaxOps()-1) // one is the mark of the deletion
		if err != nil && all.Deleted > 0 {
			err = fmt.Errorf("%w: %d keys were deleted, but not all: %s", storage.ErrInconsistent, all.Deleted, err.Error())
		}
		if err != nil {
			return nil, failed(ctx, err)
		}
		one := answer.Responses[0].GetResponseDeleteRange()
		if one.Deleted > 0 || all.Header == nil {
			all.Header = answer.Header
		}
		all.Deleted += one.Deleted
		all.PrevKvs = append(all.PrevKvs, one.PrevKvs...)
		if one.Deleted == 0 || len(r.RangeEnd) == 0 {
			return all, nil
		}
	}
}

// empty deletes what others have created, since the transaction has read them, in the ranges that it deletes, until they are seen to be
// empty. The transaction is then as of that revision.
func (t *transaction) empty(ctx context.Context, v *view) error {
	for again := true; again; {
		again = false
		for r := range t.taken {
			if len(r.RangeEnd) == 0 {
				continue
			}
			later := &transaction{server: t.server, most: t.server.commits.MaxOps() - 1, taken: map[*pb.DeleteRangeRequest][]*resourcepb.ID{}}
			later.commit = commit{after: v.revision, keys: map[string]*change{}}
			if err := later.delete(ctx, r); err != nil {
				return err
			}
			if len(later.commit.order) == 0 {
				continue
			}
			again = true
			revision, err := later.commit.run(ctx, t.server)
			if errors.Is(err, errAgain) {
				_, v.revision, err = t.server.history.Revisions(ctx)
				if err != nil {
					return err
				}
				continue
			}
			if err != nil {
				return err
			}
			v.revision = revision
			for key, one := range later.commit.keys {
				t.taken[r] = append(t.taken[r], one.id)
				v.before[key] = one.before
			}
		}
	}
	return nil
}

// deletionID is what a commit that only deletes writes as well: a deletion leaves nothing by which a commit is told from another one that
// deletes the same.
var deletionID = &resourcepb.ID{
	Uid: uid, Type: &resourcepb.Type{Group: keyType.Group, GroupVersion: keyType.GroupVersion, Kind: "deletion"},
	Tenancy: &resourcepb.Tenancy{}, Name: "last",
}

// deletion returns the mark of a commit that only deletes, to be written over that of the one before.
func (s *Server) deletion(ctx context.Context) (*resourcepb.Resource, error) {
	mark := resourceOf(deletionID, nil)
	stored, err := s.backend.Read(ctx, storage.StrongConsistency, deletionID)
	if errors.Is(err, storage.ErrNotFound) {
		return mark, nil
	}
	mark.Version = stored.GetVersion()
	return mark, err
}
