package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/batch"
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
			m.NewVersion = b.layout.version(m.Key, m.Uid, base{rev: rev, entry: entryOf(m.Resource)})
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
			if err := fenceError(resp.Responses[after].GetResponseRange().Kvs); err != nil {
				return 0, err
			}
			if t.b.fence.observeFailure(fence, resp.Responses[after+1].GetResponseRange().Kvs) {
				continue
			}
			if err := t.guard.readError(resp.Responses); err != nil {
				return 0, err
			}
			seen := make([]*mvccpb.KeyValue, len(t.ops))
			for i := range seen {
				seen[i] = first(resp.Responses[i].GetResponseRange().Kvs)
			}
			p, err = t.against(seen)
			continue
		case ctx.Err() != nil && classify(sendErr) != unknown:
			return 0, unavailable(ctx, sendErr)
		case classify(sendErr) == unknown, classify(sendErr) == finished:
			p.receipt.since = since
			lost := &lostAnswer{fence: fence, cause: sendErr}
			o, settled, err := t.b.settle(ctx, p.receipt, lost)
			switch {
			case err != nil:
				return 0, err
			case settled && o.succeeded:
				return o.rev, nil
			case lost.finished():
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
		Failure: t.guard.readRequests(append(t.gets(), t.b.layout.getMoved(), t.b.fence.get())...),
	})
	if err == nil {
		t.b.recordRevision(resp.Header.Revision)
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
			return t.readPlan(ctx)
		}
	}
	return t.plan(bases)
}

// readPlan reads what is stored, in one cut, and makes a plan from it.
func (t *transaction) readPlan(ctx context.Context) (*plan, error) {
	gets := t.gets()
	resp, err := retry(ctx, func(ctx context.Context) (*pb.TxnResponse, error) {
		return t.b.txn(ctx, &pb.TxnRequest{Success: gets})
	})
	if err != nil {
		return nil, err
	}
	t.b.recordRevision(resp.Header.Revision)
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
			bases[i] = base{rev: kv.ModRevision, entry: entryOf(res)}
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
		p.compare = append(p.compare, compareRevision(t.b.layout.resource(m.Key), bases[i].rev))
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

// settle finds out what became of a mutation whose answer was lost. settled is false where it was not applied, will not be,
// and may be sent again.
func (b *handle) settle(ctx context.Context, m *mutation, lost *lostAnswer) (o outcome, settled bool, err error) {
	if !lost.finished() {
		if err := b.pass(ctx, lost.fence); err != nil {
			return outcome{}, false, uncertain(err, lost)
		}
	}
	r, err := b.get(ctx, m.etcdKey)
	if err != nil {
		return outcome{}, false, uncertain(err, lost)
	}
	switch {
	case r.kv != nil && m.token != token{} && tokenOf(r.kv.Value) == m.token:
		return outcome{succeeded: true, rev: r.kv.ModRevision}, true, nil
	case r.kv != nil && r.kv.ModRevision == m.base.rev:
		return outcome{}, false, nil
	}
	rev, err := b.find(ctx, m, max(m.base.rev, m.since), r.rev)
	switch {
	case err != nil:
		return outcome{}, false, uncertain(err, lost)
	case rev != 0:
		return outcome{succeeded: true, rev: rev}, true, nil
	case r.kv == nil && m.base.rev == 0:
		return outcome{}, false, nil
	}
	return outcome{conflict: r.kv}, true, nil
}

// find looks for a mutation in the history of its key, between two revisions, and returns where it was applied, or 0. A write
// is known by its token. A delete is known by being the first thing that happened to its key since it was sent: if it was
// another's, then nothing was stored right after it, and the answer of ours is the same.
func (b *handle) find(ctx context.Context, m *mutation, after, until int64) (found int64, err error) {
	first := true
	err = b.scan(ctx, m.etcdKey, after+1, until, func(_ int64, events []*mvccpb.Event) bool {
		for _, ev := range events {
			if m.token == (token{}) && first && ev.Type == mvccpb.DELETE || m.token != (token{}) && ev.Type == mvccpb.PUT && tokenOf(ev.Kv.Value) == m.token {
				found = ev.Kv.ModRevision
			}
			first = false
		}
		return found == 0
	})
	return found, err
}

// mutation is one write or delete, ready to be sent: what it compares with and what it does. It can be sent any number of
// times, since it applies once at most as long as its base is a mod revision, and otherwise only after its fate is settled.
type mutation struct {
	key     key.Key
	etcdKey []byte
	base    base
	ops     []*pb.RequestOp
	token   token // zero for a delete
	size    int   // bytes in the request
	since   int64 // a revision from before it was first sent
	guard   *guard
}

// outcome is what became of a mutation.
type outcome struct {
	succeeded  bool
	rev        int64            // where it was applied
	conflict   *mvccpb.KeyValue // what stood in its way; nil for nothing
	guardError error            // that its guard does not hold; nil if it does
}

func newWrites(b *handle) *batch.Batcher[*mutation, outcome] {
	return batch.New(batch.Options[*mutation]{
		MaxCalls: b.opts.MaxTxnOps - maxOpsEach,
		MaxBytes: b.opts.MaxRequestBytes - requestOverhead,
		Size:     func(m *mutation) int { return m.size },
		Key:      func(m *mutation) string { return string(m.etcdKey) },
		Workers:  3,
		WorkerAt: 64,
	}, b.carryOut)
}

// carryOutSoon sends a mutation, alone or, if it may be, together with those that arrive at the same time.
func (b *handle) carryOutSoon(ctx context.Context, m *mutation, alone bool) (outcome, error) {
	defer b.writers.Add(-1)
	if b.writers.Add(1) > 1 && !alone {
		return b.writes.Do(ctx, m)
	}
	outcomes, err := b.send(ctx, []*mutation{m})
	if err != nil {
		return outcome{}, err
	}
	return outcomes[0], nil
}

// carryOut sends a batch. A refusal of the batch says nothing about its members, so they are then sent alone.
func (b *handle) carryOut(ctx context.Context, calls []*batch.Call[*mutation, outcome]) {
	mutations := make([]*mutation, len(calls))
	for i, c := range calls {
		mutations[i] = c.Request
	}
	outcomes, err := b.send(ctx, mutations)
	if err != nil && len(calls) > 1 && classify(err) == rejectedForGood {
		for _, c := range calls {
			one, err := b.send(ctx, []*mutation{c.Request})
			if err != nil {
				c.Done(outcome{}, err)
				continue
			}
			c.Done(one[0], nil)
		}
		return
	}
	for i, c := range calls {
		if err != nil {
			c.Done(outcome{}, err)
			continue
		}
		c.Done(outcomes[i], nil)
	}
}

// send sends mutations on different keys as one transaction. The error is a *lostAnswer where nobody knows.
func (b *handle) send(ctx context.Context, mutations []*mutation) ([]outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	for {
		fence := b.fence.position()
		var outcomes []outcome
		var passed bool
		var err error
		if len(mutations) == 1 {
			outcomes, passed, err = b.sendOne(ctx, mutations[0], fence)
		} else {
			outcomes, passed, err = b.sendMany(ctx, mutations, fence)
		}
		switch {
		case err != nil && (classify(err) == unknown || classify(err) == finished):
			return nil, &lostAnswer{fence: fence, cause: err, singleMutation: len(mutations) == 1}
		case err != nil:
			return nil, err
		case passed:
			return outcomes, nil
		}
		// The fence was moved by another caller, or another process that shares it: nothing was applied.
	}
}

func (b *handle) sendOne(ctx context.Context, m *mutation, fence int64) (outcomes []outcome, passed bool, err error) {
	resp, err := b.txn(ctx, &pb.TxnRequest{
		Compare: m.guard.compare(b.fence.holds(fence), b.layout.open(), compareRevision(m.etcdKey, m.base.rev)),
		Success: m.ops,
		Failure: m.guard.readRequests(opGet(m.etcdKey), b.fence.get(), b.layout.getMoved()),
	})
	if err != nil {
		return nil, false, err
	}
	b.recordRevision(resp.Header.Revision)
	if resp.Succeeded {
		return []outcome{{succeeded: true, rev: resp.Header.Revision}}, true, nil
	}
	if err := fenceError(resp.Responses[2].GetResponseRange().Kvs); err != nil {
		return nil, false, err
	}
	if b.fence.observeFailure(fence, resp.Responses[1].GetResponseRange().Kvs) {
		return nil, false, nil
	}
	return []outcome{{conflict: first(resp.Responses[0].GetResponseRange().Kvs), guardError: m.guard.readError(resp.Responses)}}, true, nil
}

func (b *handle) sendMany(ctx context.Context, mutations []*mutation, fence int64) (outcomes []outcome, passed bool, err error) {
	nested := make([]*pb.RequestOp, len(mutations))
	for i, m := range mutations {
		nested[i] = opTxn(&pb.TxnRequest{
			Compare: m.guard.compare(compareRevision(m.etcdKey, m.base.rev)),
			Success: m.ops,
			Failure: m.guard.readRequests(opGet(m.etcdKey)),
		})
	}
	resp, err := b.txn(ctx, &pb.TxnRequest{
		Compare: []*pb.Compare{b.fence.holds(fence), b.layout.open()},
		Success: nested,
		Failure: []*pb.RequestOp{b.fence.get(), b.layout.getMoved()},
	})
	if err != nil {
		return nil, false, err
	}
	b.recordRevision(resp.Header.Revision)
	if !resp.Succeeded {
		if err := fenceError(resp.Responses[1].GetResponseRange().Kvs); err != nil {
			return nil, false, err
		}
		b.fence.observeFailure(fence, resp.Responses[0].GetResponseRange().Kvs)
		return nil, false, nil
	}
	outcomes = make([]outcome, len(mutations))
	for i := range mutations {
		inner := resp.Responses[i].GetResponseTxn()
		if inner == nil {
			return nil, false, errors.New("etcd answered a nested transaction with something else")
		}
		if inner.Succeeded {
			outcomes[i] = outcome{succeeded: true, rev: resp.Header.Revision}
		} else {
			outcomes[i] = outcome{conflict: first(inner.Responses[0].GetResponseRange().Kvs), guardError: mutations[i].guard.readError(inner.Responses)}
		}
	}
	return outcomes, true, nil
}

// apply has a mutation carried out and finds out what became of it.
func (b *handle) apply(ctx context.Context, m *mutation) (outcome, error) {
	since, err := b.recent(ctx)
	if err != nil {
		return outcome{}, err
	}
	m.since = since
	if m.guard, err = b.guardOf(ctx); err != nil {
		return outcome{}, err
	}
	m.size += m.guard.size()
	alone := false
	for attempt := 0; ; attempt++ {
		o, err := b.carryOutSoon(ctx, m, alone)
		if err == nil {
			return o, o.guardError
		}
		var lost *lostAnswer
		switch {
		case ctx.Err() != nil:
			return outcome{}, unavailable(ctx, err)
		case errors.As(err, &lost):
			var settled bool
			if o, settled, err = b.settle(ctx, m, lost); err != nil || settled {
				return o, err
			}
			if lost.finished() {
				if lost.singleMutation {
					return outcome{}, translate(lost.cause)
				}
				alone = true // without space, a delete is refused only together with writes
				continue
			}
		case final(err, attempt):
			return outcome{}, translate(err)
		}
		if !pause(ctx, attempt) {
			return outcome{}, unavailable(ctx, err)
		}
	}
}
