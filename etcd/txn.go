package etcd

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/batch"
)

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
	applied bool
	rev     int64            // where it was applied
	stored  *mvccpb.KeyValue // what stood in its way; nil for nothing
	barred  error            // that its guard does not hold; nil if it does
}

// lostAnswer is the error of a request that may have been carried out.
type lostAnswer struct {
	fence int64 // what the fence was when it was sent
	cause error
	alone bool // it was of one mutation
}

func (e *lostAnswer) Error() string { return "the answer was lost: " + e.cause.Error() }
func (e *lostAnswer) Unwrap() error { return e.cause }

// over reports whether the request has at least come to its end.
func (e *lostAnswer) over() bool { return fateOf(e.cause) == over }

// maxOpsEach is the most operations of one mutation: the resource, the old edge, the new edge. The server counts the widest
// nested transaction against the limit of the outer one.
const maxOpsEach = 3

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
	if err != nil && len(calls) > 1 && fateOf(err) == refused {
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
		case err != nil && (fateOf(err) == unknown || fateOf(err) == over):
			return nil, &lostAnswer{fence: fence, cause: err, alone: len(mutations) == 1}
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
		Compare: m.guard.compare(b.fence.holds(fence), b.layout.open(), unchanged(m.etcdKey, m.base.rev)),
		Success: m.ops,
		Failure: m.guard.look(opGet(m.etcdKey), b.fence.get(), b.layout.getMoved()),
	})
	if err != nil {
		return nil, false, err
	}
	b.answered(resp.Header.Revision)
	if resp.Succeeded {
		return []outcome{{applied: true, rev: resp.Header.Revision}}, true, nil
	}
	if err := refusedBy(resp.Responses[2].GetResponseRange().Kvs); err != nil {
		return nil, false, err
	}
	if b.fence.moved(fence, resp.Responses[1].GetResponseRange().Kvs) {
		return nil, false, nil
	}
	return []outcome{{stored: first(resp.Responses[0].GetResponseRange().Kvs), barred: m.guard.failed(resp.Responses)}}, true, nil
}

func (b *handle) sendMany(ctx context.Context, mutations []*mutation, fence int64) (outcomes []outcome, passed bool, err error) {
	nested := make([]*pb.RequestOp, len(mutations))
	for i, m := range mutations {
		nested[i] = opTxn(&pb.TxnRequest{
			Compare: m.guard.compare(unchanged(m.etcdKey, m.base.rev)),
			Success: m.ops,
			Failure: m.guard.look(opGet(m.etcdKey)),
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
	b.answered(resp.Header.Revision)
	if !resp.Succeeded {
		if err := refusedBy(resp.Responses[1].GetResponseRange().Kvs); err != nil {
			return nil, false, err
		}
		b.fence.moved(fence, resp.Responses[0].GetResponseRange().Kvs)
		return nil, false, nil
	}
	outcomes = make([]outcome, len(mutations))
	for i := range mutations {
		inner := resp.Responses[i].GetResponseTxn()
		if inner == nil {
			return nil, false, errors.New("etcd answered a nested transaction with something else")
		}
		if inner.Succeeded {
			outcomes[i] = outcome{applied: true, rev: resp.Header.Revision}
		} else {
			outcomes[i] = outcome{stored: first(inner.Responses[0].GetResponseRange().Kvs), barred: mutations[i].guard.failed(inner.Responses)}
		}
	}
	return outcomes, true, nil
}

func first(kvs []*mvccpb.KeyValue) *mvccpb.KeyValue {
	if len(kvs) == 0 {
		return nil
	}
	return kvs[0]
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
			return o, o.barred
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
			if lost.over() {
				if lost.alone {
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
