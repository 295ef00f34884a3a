package etcdserver

import (
	"context"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/ashlar-dev/storage"
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
	var before *storage.Record
	if r.IgnoreValue || r.IgnoreLease {
		if before, _, err = s.get(ctx, id); err != nil {
			return nil, failed(ctx, err)
		}
	}
	for {
		swap, err := s.putting(ctx, r, id, before)
		if err != nil {
			return nil, failed(ctx, err)
		}
		swapped, err := s.history.Swap(ctx, swap)
		switch {
		case err != nil:
			return nil, failed(ctx, err)
		case swapped.Done:
			return putAnswer(r, before, swapped.Revision), nil
		}
		before = swapped.Stored
	}
}

func putAnswer(r *pb.PutRequest, before *storage.Record, revision int64) *pb.PutResponse {
	answer := &pb.PutResponse{Header: header(revision)}
	if r.PrevKv {
		answer.PrevKv = pair(before)
	}
	return answer
}

// checkPut refuses a request that etcd refuses.
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

// putting returns the change that a request makes of what is stored.
func (s *Server) putting(ctx context.Context, r *pb.PutRequest, id *resourcepb.ID, before *storage.Record) (storage.Swap, error) {
	if (r.IgnoreValue || r.IgnoreLease) && before == nil {
		return storage.Swap{}, rpctypes.ErrGRPCKeyNotFound
	}
	value, lease := r.Value, r.Lease
	if r.IgnoreValue {
		value = valueOf(before.Resource)
	}
	if r.IgnoreLease {
		lease = leaseOf(before.Resource)
	}
	owner, err := s.attach(ctx, lease)
	if err != nil {
		return storage.Swap{}, err
	}
	return storage.Swap{Write: resourceOf(id, value, owner), Expect: modified(before)}, nil
}

// get reads one key, linearizably, and returns nil if nothing is stored.
func (s *Server) get(ctx context.Context, id *resourcepb.ID) (*storage.Record, int64, error) {
	span, _ := spanOf(keyOf(id), nil)
	scan, err := s.history.Scan(ctx, span, storage.ScanOptions{Limit: 1})
	if err != nil || len(scan.Records) == 0 {
		return nil, scan.Revision, err
	}
	return &scan.Records[0], scan.Revision, nil
}

// modified returns the revision of a key's last change, 0 if nothing is stored.
func modified(r *storage.Record) int64 {
	if r == nil {
		return 0
	}
	return r.Modified
}

// Compact implements etcd's KV service. What is compacted is gone for every reader of the store.
func (s *Server) Compact(ctx context.Context, r *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	oldest, newest, err := s.history.Revisions(ctx)
	switch {
	case err != nil:
		return nil, failed(ctx, err)
	case r.Revision > newest:
		return nil, rpctypes.ErrGRPCFutureRev
	case r.Revision <= oldest && oldest > firstRevision:
		return nil, rpctypes.ErrGRPCCompacted
	case r.Revision > oldest:
		err = s.history.Compact(ctx, r.Revision)
	}
	if err != nil {
		return nil, failed(ctx, err)
	}
	return &pb.CompactionResponse{Header: header(newest)}, nil
}

// firstRevision is that of a store in which nothing was ever changed. Nothing was compacted where it can be read.
const firstRevision = 1
