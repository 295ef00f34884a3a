package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// commit carries out mutations all together or not at all.
func (b *handle) commit(ctx context.Context, mutations []driver.Mutation) error {
	t := &transaction{b: b, ops: mutations, token: b.token()}
	rev, err := t.run(ctx)
	if err != nil {
		var refused *storage.OpError
		if errors.As(err, &refused) {
			return refused
		}
		return unavailableUnlessKnown(ctx, err)
	}
	for i := range mutations {
		m := &mutations[i]
		if m.Verb == driver.Write {
			m.NewVersion = b.layout.version(m.Key, m.Uid, base{rev: rev, edge: edgeOf(m.Resource)})
		}
		if m.Verb == driver.Write || m.Verb == driver.Delete && (t.idle == nil || !t.idle[i]) {
			m.Revision = rev
		}
	}
	return nil
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
	b     *handle
	ops   []driver.Mutation
	token token
	guard *guard
	idle  []bool // operations that have nothing to do; nil: none
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
	gets := make([]*pb.RequestOp, 0, len(t.ops)+2)
	for i := range t.ops {
		gets = append(gets, opGet(t.b.layout.resource(t.ops[i].Key)))
	}
	return gets
}

// first is the plan that believes the versions given, or else one made from what is stored.
func (t *transaction) first(ctx context.Context) (*plan, error) {
	bases := make([]base, len(t.ops))
	for i := range t.ops {
		var possible bool
		if bases[i], possible = t.b.baseOf(&t.ops[i]); !possible {
			return t.look(ctx)
		}
	}
	return t.plan(bases)
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
	t.idle = make([]bool, len(t.ops))
	for i, kv := range seen {
		m := &t.ops[i]
		var s driver.Stored
		if kv != nil {
			_, res, err := t.b.layout.decode(kv)
			if err != nil {
				return nil, err
			}
			s = driver.Stored{Exists: true, Uid: res.GetId().GetUid(), Version: res.GetVersion()}
			bases[i] = base{rev: kv.ModRevision, edge: edgeOf(res)}
		}
		changes, err := m.Decide(s)
		if err != nil {
			return nil, &storage.OpError{Index: i, Err: err}
		}
		t.idle[i] = !changes
	}
	return t.plan(bases)
}

// plan puts the transaction together: idle operations compare but change nothing. A transaction that writes nothing but
// deletes leaves a receipt, since a deleted key carries no token.
func (t *transaction) plan(bases []base) (*plan, error) {
	p := &plan{}
	for i := range t.ops {
		m := &t.ops[i]
		p.compare = append(p.compare, unchanged(t.b.layout.resource(m.Key), bases[i].rev))
		switch {
		case m.Verb == driver.Write:
			sent, err := t.b.put(m.Key, m.Resource, bases[i], t.token)
			if err != nil {
				return nil, err
			}
			p.changes = append(p.changes, sent.ops...)
			p.receipt = sent
		case m.Verb == driver.Delete && (t.idle == nil || !t.idle[i]):
			p.changes = append(p.changes, t.b.remove(m.Key, bases[i]).ops...)
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
