package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/cas"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// MaxOps implements [storage.Transactor].
func (b *Backend) MaxOps() int { return (b.opts.MaxTxnOps - 1) / maxOpsEach }

// Commit implements [storage.Transactor].
func (b *Backend) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	keys, err := check.Ops(ops, b.MaxOps(), b.opts.MaxSize)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return nil, err
	}
	defer done()
	if len(ops) == 0 {
		return nil, nil
	}
	t := &transaction{b: b, ops: ops, keys: keys, token: b.token()}
	rev, err := t.run(ctx)
	if err != nil {
		var failed *storage.OpError
		if errors.As(err, &failed) {
			return nil, failed
		}
		return nil, unavailableUnlessKnown(ctx, err)
	}
	results := make([]*resourcepb.Resource, len(ops))
	for i := range ops {
		if res := ops[i].Write; res != nil {
			results[i] = message.Clone(res)
			results[i].Version = b.layout.version(keys[i], res.Id.Uid, base{rev: rev, edge: edgeOf(res)})
		}
	}
	return results, nil
}

func unavailableUnlessKnown(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return unavailable(ctx, err)
	}
	return err
}

// transaction is one Commit. It is sent against what the versions given say is stored, or, where they can't be what is stored,
// against what was read; what a failed comparison returns decides: an operation has failed, or (a delete of what is gone
// already) has nothing to do, and the transaction is sent again against what was seen.
type transaction struct {
	b     *Backend
	ops   []storage.Op
	keys  []key.Key
	token token
	guard *guard
}

// plan is what to send: a comparison for each operation, and the changes.
type plan struct {
	compare []*pb.Compare
	changes []*pb.RequestOp
	receipt *mutation // by which a lost answer is found out: a write, or the receipt key
}

func (t *transaction) run(ctx context.Context) (rev int64, err error) {
	since, err := t.b.recent(ctx)
	if err != nil {
		return 0, err
	}
	if t.guard, err = t.b.guardOf(ctx); err != nil {
		return 0, err
	}
	p, err := t.first(ctx)
	for attempt := 0; err == nil; attempt++ {
		fence := t.b.fence.position()
		resp, sendErr := t.send(ctx, p, fence)
		switch {
		case sendErr == nil && resp.Succeeded:
			return resp.Header.Revision, nil
		case sendErr == nil:
			after := len(t.ops) // what is read behind the operations' keys
			if err := refusedBy(resp.Responses[after].GetResponseRange().Kvs); err != nil {
				return 0, err
			}
			if t.b.fence.moved(fence, resp.Responses[after+1].GetResponseRange().Kvs) {
				continue
			}
			if err := t.guard.failed(resp.Responses); err != nil {
				return 0, err
			}
			seen := make([]*mvccpb.KeyValue, len(t.ops))
			for i := range seen {
				seen[i] = first(resp.Responses[i].GetResponseRange().Kvs)
			}
			p, err = t.against(seen)
			continue
		case ctx.Err() != nil && fateOf(sendErr) != unknown:
			return 0, unavailable(ctx, sendErr)
		case fateOf(sendErr) == unknown, fateOf(sendErr) == over:
			p.receipt.since = since
			lost := &lostAnswer{fence: fence, cause: sendErr}
			o, settled, err := t.b.settle(ctx, p.receipt, lost)
			switch {
			case err != nil:
				return 0, err
			case settled && o.applied:
				return o.rev, nil
			case lost.over():
				return 0, translate(sendErr)
			}
		case final(sendErr, attempt):
			return 0, translate(sendErr)
		}
		if !pause(ctx, attempt) {
			return 0, unavailable(ctx, sendErr)
		}
	}
	return 0, err
}

func (t *transaction) send(ctx context.Context, p *plan, fence int64) (*pb.TxnResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	resp, err := t.b.txn(ctx, &pb.TxnRequest{
		Compare: append(t.guard.compare(t.b.fence.holds(fence), t.b.layout.open()), p.compare...),
		Success: p.changes,
		Failure: t.guard.look(append(t.gets(), t.b.layout.getMoved(), t.b.fence.get())...),
	})
	if err == nil {
		t.b.answered(resp.Header.Revision)
	}
	return resp, err
}

// gets reads what is stored under the key of each operation.
func (t *transaction) gets() []*pb.RequestOp {
	gets := make([]*pb.RequestOp, 0, len(t.keys)+2)
	for _, k := range t.keys {
		gets = append(gets, opGet(t.b.layout.resource(k)))
	}
	return gets
}

// first is the plan that believes the versions given, or else one made from what is stored.
func (t *transaction) first(ctx context.Context) (*plan, error) {
	bases := make([]base, len(t.ops))
	for i := range t.ops {
		var possible bool
		if bases[i], possible = t.believed(i); !possible {
			return t.look(ctx)
		}
	}
	return t.plan(bases, nil)
}

func (t *transaction) believed(i int) (base, bool) {
	switch op := &t.ops[i]; {
	case op.Write != nil:
		return t.b.baseOf(t.keys[i], op.Write.Id.Uid, op.Write.Version)
	case op.Check != nil:
		return t.b.baseOf(t.keys[i], op.Check.Uid, op.Version)
	default:
		return t.b.layout.parseVersion(t.keys[i], op.Delete.Uid, op.Version)
	}
}

// look reads what is stored, in one cut, and makes a plan from it.
func (t *transaction) look(ctx context.Context) (*plan, error) {
	gets := t.gets()
	resp, err := retry(ctx, func(ctx context.Context) (*pb.TxnResponse, error) {
		return t.b.txn(ctx, &pb.TxnRequest{Success: gets})
	})
	if err != nil {
		return nil, err
	}
	t.b.answered(resp.Header.Revision)
	seen := make([]*mvccpb.KeyValue, len(t.ops))
	for i := range seen {
		seen[i] = first(resp.Responses[i].GetResponseRange().Kvs)
	}
	return t.against(seen)
}

// against decides every operation by what is stored. The lowest that fails is the error.
func (t *transaction) against(seen []*mvccpb.KeyValue) (*plan, error) {
	bases := make([]base, len(t.ops))
	idle := make([]bool, len(t.ops))
	for i, kv := range seen {
		op := &t.ops[i]
		var res *resourcepb.Resource
		var s cas.Stored
		if kv != nil {
			var err error
			if _, res, err = t.b.layout.decode(kv); err != nil {
				return nil, err
			}
			s = cas.Stored{Exists: true, Uid: res.GetId().GetUid(), Version: res.GetVersion()}
			bases[i] = base{rev: kv.ModRevision, edge: edgeOf(res)}
		}
		var err error
		switch {
		case op.Write != nil:
			err = cas.Write(s, op.Write.Id.Uid, op.Write.Version)
		case op.Check != nil:
			err = cas.Check(s, op.Check.Uid, op.Version)
		default:
			var remove bool
			remove, err = cas.Delete(s, op.Delete.Uid, op.Version)
			idle[i] = !remove
		}
		if err != nil {
			return nil, &storage.OpError{Index: i, Err: describe("commit", t.keys[i], err)}
		}
	}
	return t.plan(bases, idle)
}

// plan puts the transaction together: idle operations compare but change nothing. A transaction that writes nothing but
// deletes leaves a receipt, since a deleted key carries no token.
func (t *transaction) plan(bases []base, idle []bool) (*plan, error) {
	p := &plan{}
	for i := range t.ops {
		op, k := &t.ops[i], t.keys[i]
		p.compare = append(p.compare, unchanged(t.b.layout.resource(k), bases[i].rev))
		switch {
		case op.Write != nil:
			m, err := t.b.put(k, op.Write, bases[i], t.token)
			if err != nil {
				return nil, &storage.OpError{Index: i, Err: err}
			}
			p.changes = append(p.changes, m.ops...)
			p.receipt = m
		case op.Delete != nil && (idle == nil || !idle[i]):
			p.changes = append(p.changes, t.b.remove(k, bases[i]).ops...)
		}
	}
	if p.receipt == nil {
		p.receipt = &mutation{etcdKey: []byte(t.b.layout.receiptKey(t.b.handle[0])), token: t.token}
		if len(p.changes) > 0 {
			p.changes = append(p.changes, opPut(p.receipt.etcdKey, appendHeader(nil, t.token)))
		}
	}
	return p, nil
}
