package etcdserver

import (
	"context"
	"maps"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
)

// Txn implements etcd's KV service.
func (s *Server) Txn(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	if size(r) > maxAllOps {
		return nil, rpctypes.ErrGRPCTooManyOps
	}
	if err := checkTxn(r, maxTxnOps); err != nil {
		return nil, err
	}
	var answer *pb.TxnResponse
	var err error
	if t := asSingleKeyTxn(r); t != nil {
		answer, err = t.run(ctx, s)
	} else {
		answer, err = s.transact(ctx, r)
	}
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	return answer, nil
}

// maxTxnOps is the maximum number of comparisons, and of operations in a branch. It equals etcd's default.
const maxTxnOps = 128

// maxAllOps is the maximum number of comparisons and operations, including nested transactions. Each comparison needs a read, and each put
// is checked against each deletion.
const maxAllOps = 4096

// size counts the comparisons and operations of a transaction, in all branches.
func size(r *pb.TxnRequest) int {
	n := len(r.Compare) + len(r.Success) + len(r.Failure)
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			if inside := op.GetRequestTxn(); inside != nil {
				n += size(inside)
			}
		}
	}
	return n
}

// checkTxn rejects requests that etcd rejects.
func checkTxn(r *pb.TxnRequest, maxOps int) error {
	if max(len(r.Compare), len(r.Success), len(r.Failure)) > maxOps {
		return rpctypes.ErrGRPCTooManyOps
	}
	for _, c := range r.Compare {
		if len(c.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
	}
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		for _, op := range branch {
			if err := checkOp(op, maxOps-len(branch)); err != nil {
				return err
			}
		}
		if _, err := writeSetOf(branch); err != nil {
			return err
		}
	}
	return nil
}

func checkOp(op *pb.RequestOp, maxOps int) error {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		return checkRange(op.RequestRange)
	case *pb.RequestOp_RequestPut:
		return checkPut(op.RequestPut)
	case *pb.RequestOp_RequestDeleteRange:
		if len(op.RequestDeleteRange.Key) == 0 {
			return rpctypes.ErrGRPCEmptyKey
		}
		return nil
	case *pb.RequestOp_RequestTxn:
		return checkTxn(op.RequestTxn, maxOps)
	}
	return rpctypes.ErrGRPCKeyNotFound // an empty operation; etcd returns the same error
}

// writeSet is the set of keys that a branch puts and of ranges that it deletes.
type writeSet struct {
	puts    map[string]bool
	deletes []*pb.DeleteRangeRequest
}

// writeSetOf returns the write set of a branch. No key may be put twice, or put and deleted.
func writeSetOf(branch []*pb.RequestOp) (writeSet, error) {
	all := writeSet{puts: map[string]bool{}}
	for _, op := range branch {
		if d := op.GetRequestDeleteRange(); d != nil {
			all.deletes = append(all.deletes, d)
		}
	}
	put := func(key string) error {
		for _, d := range all.deletes {
			if within([]byte(key), d.Key, d.RangeEnd) {
				return rpctypes.ErrGRPCDuplicateKey
			}
		}
		if all.puts[key] {
			return rpctypes.ErrGRPCDuplicateKey
		}
		all.puts[key] = true
		return nil
	}
	for _, op := range branch {
		if p := op.GetRequestPut(); p != nil {
			if err := put(string(p.Key)); err != nil {
				return all, err
			}
		}
		if err := addNested(op.GetRequestTxn(), &all, put); err != nil {
			return all, err
		}
	}
	return all, nil
}

// addNested adds the write sets of a nested transaction. Its two branches may put the same key.
func addNested(t *pb.TxnRequest, all *writeSet, put func(key string) error) error {
	both := map[string]bool{}
	var deletes []*pb.DeleteRangeRequest
	for _, branch := range [][]*pb.RequestOp{t.GetSuccess(), t.GetFailure()} {
		inside, err := writeSetOf(branch)
		if err != nil {
			return err
		}
		maps.Copy(both, inside.puts)
		deletes = append(deletes, inside.deletes...)
	}
	for key := range all.puts {
		for _, d := range deletes {
			if within([]byte(key), d.Key, d.RangeEnd) {
				return rpctypes.ErrGRPCDuplicateKey
			}
		}
	}
	for key := range both {
		if err := put(key); err != nil {
			return err
		}
	}
	all.deletes = append(all.deletes, deletes...)
	return nil
}
