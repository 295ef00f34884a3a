package etcdserver

import (
	"context"
	"errors"
	"math"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// errRangeCompared is the refusal of what a transaction cannot promise here: nothing in the store keeps others from creating a key in a range.
var errRangeCompared = status.Error(codes.Unimplemented,
	"etcdserver: a transaction that changes something if a comparison of a range holds is not served here: compare single keys")

// transact carries out a transaction of any kind. It reads at one revision, decides, and makes its changes depend on what it has read,
// until nobody comes between.
func (s *Server) transact(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	for {
		_, newest, err := s.history.Revisions(ctx)
		if err != nil {
			return nil, err
		}
		t := &transaction{server: s, commit: commit{after: newest, keys: map[string]*change{}, leases: map[int64]bool{}}}
		answer, err := t.run(ctx, r)
		switch {
		case err == nil:
			return answer, nil
		case ctx.Err() != nil, !errors.Is(err, errConcurrentChange) && !errors.Is(err, storage.ErrCompacted):
			return nil, err
		case errors.Is(err, storage.ErrCompacted):
			// Either what was newest is compacted by now, or the request reads at a revision that is.
			if oldest, _, e := s.history.Revisions(ctx); e != nil || oldest <= newest {
				return nil, errors.Join(e, err)
			}
		}
	}
}

// transaction is one attempt at a transaction.
type transaction struct {
	server        *Server
	commit        commit
	comparesRange bool // what is to be done depends on what a range has not
	deletions     map[*pb.DeleteRangeRequest][]*resourcepb.ID
	plan          map[*pb.TxnRequest]bool // whether the comparisons of a transaction hold
}

func (t *transaction) run(ctx context.Context, r *pb.TxnRequest) (*pb.TxnResponse, error) {
	t.deletions, t.plan = map[*pb.DeleteRangeRequest][]*resourcepb.ID{}, map[*pb.TxnRequest]bool{}
	if err := t.evaluate(ctx, r); err != nil {
		return nil, err
	}
	if err := t.collect(ctx, r); err != nil {
		return nil, err
	}
	v := view{revision: t.commit.after}
	var changing []*change
	for _, key := range t.commit.order {
		changing = append(changing, t.commit.keys[key])
	}
	switch {
	case len(changing) == 0:
		return t.response(ctx, r, &v)
	case t.comparesRange:
		return nil, errRangeCompared
	}
	err := t.server.checkRevisions(ctx, t.reads(r))
	if err == nil {
		v.revision, err = t.change(ctx, changing)
	}
	if err != nil {
		return nil, err
	}
	v.before, v.deletedLater = map[string]*history.Record{}, map[string]bool{}
	for key, c := range t.commit.keys {
		if c.modifies() {
			v.before[key] = c.before
		}
	}
	if err := t.sweep(ctx, &v); err != nil {
		return nil, afterCommit(err)
	}
	answer, err := t.response(ctx, r, &v)
	return answer, afterCommit(err)
}

// sweep deletes what others have created, since the transaction has read them, in the ranges that it deletes.
func (t *transaction) sweep(ctx context.Context, v *view) error {
	empty, last := true, v.revision
	for r := range t.deletions {
		if len(r.RangeEnd) == 0 {
			continue
		}
		rest, err := t.server.sweep(ctx, r, v.revision)
		if err != nil {
			return err
		}
		for _, one := range rest.deleted {
			t.deletions[r] = append(t.deletions[r], one.id)
			v.before[string(keyOf(one.id))] = one.before
			v.deletedLater[string(keyOf(one.id))] = true
		}
		if empty = empty && (len(rest.deleted) == 0 || rest.revision > v.revision); empty {
			last = max(last, rest.revision)
		}
	}
	if empty {
		v.revision = last
	}
	return nil
}

// change makes the changes. One key alone that nothing else depends on is changed by a swap.
func (t *transaction) change(ctx context.Context, changing []*change) (int64, error) {
	if len(changing) > 1 || len(t.commit.keys) > 1 || changing[0].lease != 0 {
		return t.commit.run(ctx, t.server)
	}
	swapped, err := t.server.swap(ctx, changing[0])
	if err == nil && !swapped.Done {
		err = errConcurrentChange
	}
	return swapped.Revision, err
}

// evaluate compares, and goes on within the branches that are taken. All see the store as it was before the transaction. Of a range for which
// a comparison fails, one key for which it does is all that the failure depends on.
func (t *transaction) evaluate(ctx context.Context, r *pb.TxnRequest) error {
	holds, ranges := true, false
	for _, c := range r.Compare {
		one, whole, err := t.compare(ctx, c)
		if err != nil {
			return err
		}
		ranges = ranges || whole
		if holds = one; !holds {
			ranges = whole
			break
		}
	}
	t.plan[r] = holds
	t.comparesRange = t.comparesRange || ranges
	for _, op := range t.branch(r) {
		if inside := op.GetRequestTxn(); inside != nil {
			if err := t.evaluate(ctx, inside); err != nil {
				return err
			}
		}
	}
	return nil
}

func (t *transaction) branch(r *pb.TxnRequest) []*pb.RequestOp {
	if t.plan[r] {
		return r.Success
	}
	return r.Failure
}

// compare reports whether a comparison holds, and whether that depends on a range as a whole.
func (t *transaction) compare(ctx context.Context, c *pb.Compare) (holds, whole bool, err error) {
	if len(c.RangeEnd) == 0 {
		one, err := t.key(ctx, c.Key)
		if one == nil || err != nil {
			return compareHolds(c, nil), false, err
		}
		one.requiresUnchanged = true
		return compareHolds(c, one.before), false, nil
	}
	all, err := t.scan(ctx, c.Key, c.RangeEnd, 0)
	if err != nil || len(all) == 0 {
		return compareHolds(c, nil), true, err
	}
	i := slices.IndexFunc(all, func(r history.Record) bool { return !compareHolds(c, &r) })
	if i < 0 {
		return true, true, nil
	}
	t.changeOf(&all[i]).requiresUnchanged = true
	return false, false, nil
}

// scan reads a range as the transaction sees it.
func (t *transaction) scan(ctx context.Context, key, end []byte, limit int) ([]history.Record, error) {
	span, ok := requestRange(key, end)
	if !ok {
		return nil, nil
	}
	scan, err := t.server.scanOnce(ctx, span, history.ScanOptions{Revision: t.commit.after, Limit: limit, Bytes: math.MaxInt})
	return scan.Records, err
}

// key returns what the transaction knows of a key, which it reads the first time; nil if nothing can be stored there.
func (t *transaction) key(ctx context.Context, key []byte) (*change, error) {
	if one := t.commit.keys[string(key)]; one != nil {
		return one, nil
	}
	id, err := idOf(key)
	if err != nil {
		return nil, nil
	}
	all, err := t.scan(ctx, key, nil, 1)
	if err != nil {
		return nil, err
	}
	one := &change{id: id}
	if len(all) > 0 {
		one.before = &all[0]
	}
	t.commit.keys[string(key)] = one
	return one, nil
}

// collect notes what the branches that are taken change.
func (t *transaction) collect(ctx context.Context, r *pb.TxnRequest) error {
	for _, op := range t.branch(r) {
		var err error
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestPut:
			err = t.put(ctx, op.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			err = t.delete(ctx, op.RequestDeleteRange)
		case *pb.RequestOp_RequestTxn:
			err = t.collect(ctx, op.RequestTxn)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *transaction) put(ctx context.Context, r *pb.PutRequest) error {
	id, err := idOf(r.Key)
	if err != nil {
		return err
	}
	one, err := t.key(ctx, r.Key)
	if err != nil {
		return err
	}
	put, err := putChange(r, id, one.before)
	if err != nil {
		return err
	}
	t.commit.order = append(t.commit.order, string(r.Key))
	if one.write, one.lease = put.write, put.lease; put.lease != 0 {
		t.commit.leases[put.lease] = true
	}
	return nil
}

func (t *transaction) delete(ctx context.Context, r *pb.DeleteRangeRequest) error {
	all, err := t.scan(ctx, r.Key, r.RangeEnd, 0)
	if err != nil {
		return err
	}
	t.deletions[r] = nil
	if len(all) == 0 && len(r.RangeEnd) == 0 {
		if one, err := t.key(ctx, r.Key); one == nil || err != nil {
			return err
		} else if one.write == nil {
			one.requiresUnchanged = true // else somebody may create it before the rest is done
		}
	}
	for i := range all {
		one := t.changeOf(&all[i])
		if !one.delete { // else another range has it as well
			one.delete = true
			t.commit.order = append(t.commit.order, string(keyOf(one.id)))
		}
		t.deletions[r] = append(t.deletions[r], one.id)
	}
	return nil
}

// changeOf returns what the transaction knows of a key that it has read.
func (t *transaction) changeOf(r *history.Record) *change {
	key := string(keyOf(r.Resource.GetId()))
	if t.commit.keys[key] == nil {
		t.commit.keys[key] = &change{id: r.Resource.GetId(), before: r}
	}
	return t.commit.keys[key]
}

// reads returns the requests to read of the branches that are taken.
func (t *transaction) reads(r *pb.TxnRequest) (all []*pb.RequestOp) {
	for _, op := range t.branch(r) {
		if inside := op.GetRequestTxn(); inside != nil {
			all = append(all, t.reads(inside)...)
		} else {
			all = append(all, op)
		}
	}
	return all
}

// response says what every operation came to, after all have been carried out.
func (t *transaction) response(ctx context.Context, r *pb.TxnRequest, v *view) (*pb.TxnResponse, error) {
	answer := &pb.TxnResponse{Header: header(v.revision), Succeeded: t.plan[r]}
	for _, op := range t.branch(r) {
		var one *pb.ResponseOp
		switch op := op.Request.(type) {
		case *pb.RequestOp_RequestRange:
			read, err := v.read(ctx, t.server, op.RequestRange)
			if err != nil {
				return nil, err
			}
			one = responseOf(read)
		case *pb.RequestOp_RequestPut:
			one = v.put(op.RequestPut)
		case *pb.RequestOp_RequestDeleteRange:
			one = v.deleteResponse(op.RequestDeleteRange, t.deletions[op.RequestDeleteRange]...)
		case *pb.RequestOp_RequestTxn:
			inside, err := t.response(ctx, op.RequestTxn, v)
			if err != nil {
				return nil, err
			}
			inside.Header = innerHeader(v.revision)
			one = &pb.ResponseOp{Response: &pb.ResponseOp_ResponseTxn{ResponseTxn: inside}}
		}
		answer.Responses = append(answer.Responses, one)
	}
	return answer, nil
}
