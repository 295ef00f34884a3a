package etcd

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/telemetry"
)

// sender sends requests. It joins concurrent requests to one transaction.
type sender struct {
	*conn
	revocation *revocation
	batches    *batch.Batcher[*request, outcome]
	inFlight   atomic.Int64 // requests in flight: a single one bypasses the batcher
	admission  atomic.Int64 // the last seen revision of a fence that admits guarded requests; 0: none
}

func newSender(c *conn, r *revocation) *sender {
	s := &sender{conn: c, revocation: r}
	s.batches = batch.New(batch.Options[*request]{
		MaxCalls: c.opts.MaxTxnOps - maxOpsEach,
		MaxBytes: c.opts.MaxRequestBytes - requestOverhead,
		Size:     func(r *request) int { return r.size },
		Key:      func(r *request) string { return string(r.key(0)) },
		Workers:  3,
		WorkerAt: 64,
		Sizes:    c.batchSizes(telemetry.Write),
	}, s.sendBatch)
	return s
}

// errAdmitsOne means that a batch contains guarded requests although the fence admits them only alone.
var errAdmitsOne = fmt.Errorf("%w for requests in a batch", storage.ErrFenced)

// submit sends a request, in a batch if others are in flight.
func (s *sender) submit(ctx context.Context, r *request) (outcome, error) {
	defer s.inFlight.Add(-1)
	if s.inFlight.Add(1) > 1 && !r.exclusive && (r.guard == nil || s.admission.Load() == 0) {
		return s.batches.Do(ctx, r)
	}
	s.batches.Record(ctx)
	outcomes, err := s.send(ctx, r)
	if err != nil {
		return outcome{}, err
	}
	return outcomes[0], nil
}

// sendBatch sends a batch. If etcd rejects it, the cause may be one of the requests, so each is sent alone.
func (s *sender) sendBatch(ctx context.Context, calls []*batch.Call[*request, outcome]) {
	requests := make([]*request, len(calls))
	for i, c := range calls {
		requests[i] = c.Request
	}
	outcomes, err := s.send(ctx, requests...)
	for i, c := range calls {
		switch {
		case err == nil:
			c.Done(outcomes[i], nil)
		case len(calls) > 1 && classify(err) == rejectedForGood:
			s.sendBatch(ctx, calls[i:i+1])
		default:
			c.Done(outcome{}, err)
		}
	}
}

// send sends requests on different keys as one transaction. The error is a *lostAnswer if the transaction may have been applied.
func (s *sender) send(ctx context.Context, requests ...*request) ([]outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	for {
		position, fence := s.revocation.position(), int64(0)
		if len(requests) == 1 && requests[0].guard != nil {
			fence = s.admission.Load()
		}
		resp, err := s.txn(ctx, s.transaction(requests, position, fence))
		if err != nil {
			if class := classify(err); class == unknown || class == appliedOrNot {
				err = &lostAnswer{position: position, cause: err, single: len(requests) == 1}
			}
			return nil, err
		}
		s.recordRevision(resp.Header.Revision)
		responses := resp.Responses
		if !resp.Succeeded {
			n := len(responses) - 2
			found := first(responses[n+1].GetResponseRange().Kvs)
			if err := requests[0].guard.refusal(found); err != nil {
				return nil, err
			}
			if now := found.GetModRevision(); now != fence {
				if len(requests) > 1 {
					return nil, errAdmitsOne // sent again, each alone
				}
				s.admission.Store(now)
				continue
			}
			if s.revocation.observeFailure(position, responses[n].GetResponseRange().Kvs) {
				continue // another request, or another process, has advanced the revocation
			}
			if responses = responses[:n]; n == 0 {
				return nil, errImpossible // no other comparison can have failed
			}
		}
		if len(requests) == 1 {
			return []outcome{requests[0].outcome(resp.Succeeded, responses, resp.Header.Revision)}, nil
		}
		outcomes := make([]outcome, len(requests))
		for i, r := range requests {
			inner := responses[i].GetResponseTxn()
			if inner == nil {
				return nil, errors.New("etcd answered a nested transaction with an unexpected response")
			}
			outcomes[i] = r.outcome(inner.Succeeded, inner.Responses, resp.Header.Revision)
		}
		return outcomes, nil
	}
}

// transaction returns one transaction for all requests. The transactions of several requests are nested in it. It has two further
// comparisons: that the revocation is at position, and that the fence has a revision. If it fails, its last two reads return the keys of
// these comparisons.
func (s *sender) transaction(requests []*request, position, fence int64) *pb.TxnRequest {
	var txn *pb.TxnRequest
	if len(requests) == 1 {
		txn = requests[0].txn()
	} else {
		txn = &pb.TxnRequest{Success: make([]*pb.RequestOp, len(requests))}
		for i, r := range requests {
			txn.Success[i] = opTxn(r.txn())
		}
	}
	txn.Compare = append(txn.Compare, s.revocation.holds(position), s.layout.fenceAt(fence))
	txn.Failure = append(txn.Failure, s.revocation.get(), s.layout.getFence())
	return txn
}
