package etcdserver

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Put implements etcd's KV service.
func (s *Server) Put(ctx context.Context, r *pb.PutRequest) (*pb.PutResponse, error) {
	if err := checkPut(r); err != nil {
		return nil, err
	}
	id, err := idOf(r.Key)
	if err != nil {
		return nil, err
	}
	lock, release, err := s.keyLocks.acquire(ctx, string(r.Key))
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	defer release()
	before := lock.last
	if r.IgnoreValue || r.IgnoreLease {
		if before, _, err = s.get(ctx, id); err != nil {
			return nil, toStatus(ctx, err)
		}
	}
	for {
		put, err := putChange(r, id, before)
		if err != nil {
			return nil, err
		}
		swapped, err := s.swap(ctx, put)
		switch {
		case err != nil:
			return nil, toStatus(ctx, err)
		case swapped.Done:
			lock.last = swapped.Stored
			return putResponse(r, before, swapped.Revision), nil
		}
		before = swapped.Stored
	}
}

func putResponse(r *pb.PutRequest, before *history.Record, revision int64) *pb.PutResponse {
	answer := &pb.PutResponse{Header: header(revision)}
	if r.PrevKv {
		answer.PrevKv = pair(before)
	}
	return answer
}

// checkPut rejects requests that etcd rejects.
func checkPut(r *pb.PutRequest) error {
	switch {
	case len(r.Key) == 0:
		return rpctypes.ErrGRPCEmptyKey
	case r.IgnoreValue && len(r.Value) != 0:
		return rpctypes.ErrGRPCValueProvided
	case r.IgnoreLease && r.Lease != 0:
		return rpctypes.ErrGRPCLeaseProvided
	}
	return nil
}

// putChange returns the change of a put request to a record.
func putChange(r *pb.PutRequest, id *resourcepb.ID, before *history.Record) (*change, error) {
	if (r.IgnoreValue || r.IgnoreLease) && before == nil {
		return nil, rpctypes.ErrGRPCKeyNotFound
	}
	value, lease := r.Value, r.Lease
	if r.IgnoreValue {
		value = valueOf(before.Resource)
	}
	if r.IgnoreLease {
		lease = leaseOf(before.Resource)
	}
	return &change{id: id, before: before, write: resourceOf(id, value), lease: lease}, nil
}

// swap changes one key if no other writer has changed the key since the read.
func (s *Server) swap(ctx context.Context, c *change) (history.SwapResult, error) {
	swap := history.Swap{Write: c.write, Expect: modRevision(c.before)}
	if c.delete {
		swap.Delete = c.id
	}
	if c.lease == 0 {
		return s.history.Swap(ctx, swap)
	}
	// Attaching a key needs a transaction that checks the lease.
	stored, revision, err := s.get(ctx, c.id)
	if err != nil || modRevision(stored) != swap.Expect {
		return history.SwapResult{Stored: stored, Revision: revision}, err
	}
	key := string(keyOf(c.id))
	both := &commit{
		after: revision, leases: map[int64]bool{c.lease: true}, order: []string{key},
		keys: map[string]*change{key: {id: c.id, before: stored, write: c.write, lease: c.lease}},
	}
	done, err := both.run(ctx, s)
	switch {
	case err == nil:
		return history.SwapResult{Done: true, Revision: done}, nil
	case !errors.Is(err, errConcurrentChange):
		return history.SwapResult{}, err
	}
	stored, revision, err = s.get(ctx, c.id)
	return history.SwapResult{Stored: stored, Revision: revision}, err
}

// Compact implements etcd's KV service. The compacted history is lost for every reader of the store.
func (s *Server) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	oldest, newest, err := s.history.Revisions(ctx)
	switch {
	case err != nil:
		return nil, toStatus(ctx, err)
	case r.Revision > newest:
		return nil, rpctypes.ErrGRPCFutureRev
	case r.Revision < 0, r.Revision <= oldest && oldest > firstRevision:
		return nil, rpctypes.ErrGRPCCompacted
	case r.Revision > oldest:
		err = s.history.Compact(ctx, r.Revision)
	}
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return &pb.CompactionResponse{Header: header(newest)}, nil
}

// firstRevision is the revision of a new store. If it is readable, nothing was compacted.
const firstRevision = 1
