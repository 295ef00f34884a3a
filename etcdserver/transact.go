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

// errRangeCompared rejects a transaction that this server cannot guarantee: the store cannot prevent other clients from creating keys in a
// range.
var errRangeCompared = status.Error(codes.Unimplemented,
	"etcdserver: a transaction that depends on a comparison of a range is not supported: compare single keys")

// transact executes a transaction of any kind. It reads at one revision, evaluates the comparisons, and makes the changes
// conditional on the keys that it has read. It retries until no other change interferes.
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
		case errors.Is(err, storage.ErrInconsistent): // the transaction may have been applied, whatever else the error matches
			return nil, err
		case ctx.Err() != nil, !errors.Is(err, errConcurrentChange) && !errors.Is(err, storage.ErrCompacted):
			return nil, err
		case errors.Is(err, storage.ErrCompacted):
			// Either the newest revision was compacted meanwhile, or the request reads at a compacted one.
			if oldest, _, e := s.history.Revisions(ctx); e != nil || oldest <= newest {
				return nil, errors.Join(e, err)
			}
		}
	}
}

// transaction is one attempt to execute a transaction.
type transaction struct {
	server        *Server
	commit        commit
	comparesRange bool // the outcome depends on keys that a range does not contain
	deletions     map[*pb.DeleteRangeRequest][]*resourcepb.ID
	plan          map[*pb.TxnRequest]bool // whether the comparisons of each transaction hold
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
	v.before, v.newlyDeleted = map[string]*history.Record{}, map[string]bool{}
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

// sweep deletes keys that other clients have created in the deleted ranges since the transaction read them.
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
		for _, one := range rest.deletions {
			t.deletions[r] = append(t.deletions[r], one.id)
			v.before[string(keyOf(one.id))] = one.before
			v.newlyDeleted[string(keyOf(one.id))] = true
		}
		if empty = empty && (len(rest.deletions) == 0 || rest.revision > v.revision); empty {
			last = max(last, rest.revision)
		}
	}
	if empty {
		v.revision = last
	}
	return nil
}

// change commits the changes. A single key without dependencies is changed by a swap.
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

// evaluate evaluates the comparisons, including comparisons of transactions in the branches to execute. All see the store as it was
// before the transaction. If the comparison of a range fails, the transaction depends only on one key that fails it.
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

// key returns the change of a key, and reads the key the first time. It returns nil if the key cannot be stored.
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

// collect records the changes of the branches to execute.
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
			one.requiresUnchanged = true // otherwise another client may create it before the commit
		}
	}
	for i := range all {
		one := t.changeOf(&all[i])
		if !one.delete { // otherwise another range contains it as well
			one.delete = true
			t.commit.order = append(t.commit.order, string(keyOf(one.id)))
		}
		t.deletions[r] = append(t.deletions[r], one.id)
	}
	return nil
}

// changeOf returns the change of a key that was read.
func (t *transaction) changeOf(r *history.Record) *change {
	key := string(keyOf(r.Resource.GetId()))
	if t.commit.keys[key] == nil {
		t.commit.keys[key] = &change{id: r.Resource.GetId(), before: r}
	}
	return t.commit.keys[key]
}

// reads returns the read operations of the branches to execute.
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

// response returns the responses to all operations, after they have been executed.
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
