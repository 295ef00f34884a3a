package etcdserver

import (
	"bytes"
	"context"
	"errors"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// singleKeyTxn is a transaction that compares one key and changes no other key. It executes as a Swap, so it has its own revision, and its
// reads see that revision. All transactions of Kubernetes are of this kind.
type singleKeyTxn struct {
	request *pb.TxnRequest
	id      *resourcepb.ID
}

// asSingleKeyTxn returns a transaction as a singleKeyTxn, or nil if it is not one.
func asSingleKeyTxn(r *pb.TxnRequest) *singleKeyTxn {
	var key []byte
	same := func(k, end []byte) bool {
		if key == nil {
			key = k
		}
		return len(end) == 0 && len(k) > 0 && bytes.Equal(key, k)
	}
	for _, c := range r.Compare {
		if !same(c.Key, c.RangeEnd) {
			return nil
		}
	}
	for _, branch := range [][]*pb.RequestOp{r.Success, r.Failure} {
		writes := 0
		for _, op := range branch {
			switch op := op.Request.(type) {
			case *pb.RequestOp_RequestRange:
				continue
			case *pb.RequestOp_RequestPut:
				if !same(op.RequestPut.Key, nil) {
					return nil
				}
			case *pb.RequestOp_RequestDeleteRange:
				if !same(op.RequestDeleteRange.Key, op.RequestDeleteRange.RangeEnd) {
					return nil
				}
			default:
				return nil
			}
			writes++
		}
		if writes > 1 {
			return nil
		}
	}
	if key == nil {
		return nil
	}
	id, err := idOf(key)
	if err != nil {
		return nil
	}
	return &singleKeyTxn{request: r, id: id}
}

// predict returns the record that must be stored for the comparison to hold, as far as a swap needs it. It returns false if the comparison
// does not determine it.
func (t *singleKeyTxn) predict() (*history.Record, bool) {
	if len(t.request.Compare) != 1 || t.request.Compare[0].Result != pb.Compare_EQUAL {
		return nil, false
	}
	for _, op := range t.request.Success {
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			if p := op.RequestPut; p.PrevKv || p.IgnoreValue || p.IgnoreLease {
				return nil, false
			}
		case *pb.RequestOp_RequestDeleteRange:
			continue
		default:
			return nil, false // reads may need the previous value
		}
	}
	if len(t.request.Success) == 0 {
		return nil, false
	}
	c := t.request.Compare[0]
	switch {
	case c.Target == pb.Compare_MOD && c.GetModRevision() > 0:
		return &history.Record{Modified: c.GetModRevision()}, true
	case c.Target == pb.Compare_MOD && c.GetModRevision() == 0,
		c.Target == pb.Compare_CREATE && c.GetCreateRevision() == 0,
		c.Target == pb.Compare_VERSION && c.GetVersion() == 0:
		return nil, true
	}
	return nil, false
}

// run executes the transaction.
func (t *singleKeyTxn) run(ctx context.Context, s *Server) (*pb.TxnResponse, error) {
	if len(t.request.Compare) == 0 { // it is retried until it succeeds
		lock, release, err := s.keyLocks.acquire(ctx, string(keyOf(t.id)))
		if err != nil {
			return nil, err
		}
		defer release()
		lock.last = nil
	}
	if stored, predicted := t.predict(); predicted {
		answer, now, err := t.apply(ctx, s, keyState{record: stored}, true)
		if answer != nil || err != nil {
			return answer, err
		}
		return t.decide(ctx, s, now)
	}
	stored, revision, err := s.get(ctx, t.id)
	if err != nil {
		return nil, err
	}
	return t.decide(ctx, s, keyState{stored, revision})
}

// keyState is the state of the key at a revision.
type keyState struct {
	record   *history.Record
	revision int64
}

// decide evaluates the comparisons and executes a branch, until no other change interferes.
func (t *singleKeyTxn) decide(ctx context.Context, s *Server, now keyState) (*pb.TxnResponse, error) {
	for {
		succeeded := !slices.ContainsFunc(t.request.Compare, func(c *pb.Compare) bool { return !compareHolds(c, now.record) })
		answer, other, err := t.apply(ctx, s, now, succeeded)
		switch {
		case answer != nil:
			return answer, nil
		case errors.Is(err, storage.ErrInconsistent): // the branch may have been applied, whatever else the error matches
			return nil, err
		case errors.Is(err, storage.ErrCompacted) && ctx.Err() == nil:
			// The compared revision was compacted before the rest of the branch was read.
			if other.record, other.revision, err = s.get(ctx, t.id); err != nil {
				return nil, err
			}
		case err != nil:
			return nil, err
		}
		now = other
	}
}

// apply executes one branch. If it returns neither a response nor an error, another change interfered, and it returns the current state.
func (t *singleKeyTxn) apply(ctx context.Context, s *Server, now keyState, succeeded bool) (*pb.TxnResponse, keyState, error) {
	branch := t.request.Success
	if !succeeded {
		branch = t.request.Failure
	}
	if err := s.checkRevisions(ctx, branch); err != nil {
		return nil, keyState{}, err
	}
	v := view{revision: now.revision}
	for _, op := range branch {
		one, err := t.change(op, now.record)
		if err != nil {
			return nil, keyState{}, err
		}
		if one == nil {
			continue
		}
		swapped, err := s.swap(ctx, one)
		if err != nil || !swapped.Done {
			return nil, keyState{swapped.Stored, swapped.Revision}, err
		}
		if one.delete {
			now.record = swapped.Stored // the complete record, if it was predicted
		}
		v = view{revision: swapped.Revision, before: map[string]*history.Record{string(keyOf(t.id)): now.record}}
	}
	answer := &pb.TxnResponse{Header: header(v.revision), Succeeded: succeeded}
	for _, op := range branch {
		one, err := t.response(ctx, s, op, &v, now)
		switch {
		case err != nil && v.before != nil:
			return nil, keyState{}, afterCommit(err)
		case err != nil:
			return nil, keyState{}, err
		}
		answer.Responses = append(answer.Responses, one)
	}
	return answer, keyState{}, nil
}

// change returns the change of an operation, or nil if it only reads.
func (t *singleKeyTxn) change(op *pb.RequestOp, stored *history.Record) (*change, error) {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestPut:
		return putChange(op.RequestPut, t.id, stored)
	case *pb.RequestOp_RequestDeleteRange:
		return &change{id: t.id, before: stored, delete: true}, nil
	}
	return nil, nil
}

// response returns the response to one operation, after all have been executed.
func (t *singleKeyTxn) response(ctx context.Context, s *Server, op *pb.RequestOp, v *view, now keyState) (*pb.ResponseOp, error) {
	switch op := op.Request.(type) {
	case *pb.RequestOp_RequestRange:
		r := op.RequestRange
		if v.before == nil && now.record != nil && len(r.RangeEnd) == 0 && r.Revision == 0 && bytes.Equal(r.Key, keyOf(t.id)) {
			known := &pb.RangeResponse{Header: innerHeader(v.revision), Count: 1}
			if !r.CountOnly {
				known.Kvs = []*mvccpb.KeyValue{pair(now.record)}
				arrange(r, known)
			}
			return responseOf(known), nil
		}
		answer, err := v.read(ctx, s, r)
		return responseOf(answer), err
	case *pb.RequestOp_RequestPut:
		return v.put(op.RequestPut), nil
	case *pb.RequestOp_RequestDeleteRange:
		return v.deleteResponse(op.RequestDeleteRange, t.id), nil
	}
	return nil, nil
}
