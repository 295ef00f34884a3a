package etcd

import (
	"context"
	"math"
	"sync/atomic"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/telemetry"
)

// reading is the result of reading a key.
type reading struct {
	kv    *mvccpb.KeyValue // nil if nothing is stored
	rev   int64            // of the cluster
	fence *mvccpb.KeyValue // nil in an open store
}

// maxReads bounds the size of the response to a batch of reads: a value may have 1 MiB.
const maxReads = 127

// reader reads single keys. It joins concurrent strong reads.
type reader struct {
	*conn
	reads   *batch.Batcher[[]byte, reading]
	readers atomic.Int64 // reads in flight: a single one bypasses the batcher
}

func newReader(c *conn) *reader {
	r := &reader{conn: c}
	r.reads = batch.New(batch.Options[[]byte]{
		MaxCalls: min(c.opts.MaxTxnOps-1, maxReads),
		Workers:  2,
		WorkerAt: 100,
		Sizes:    c.batchSizes(telemetry.Read),
	}, r.readBatch)
	return r
}

// readBatch reads a batch of keys in one transaction, which etcd answers linearizably like a single get.
func (r *reader) readBatch(ctx context.Context, calls []*batch.Call[[]byte, reading]) {
	if len(calls) == 1 {
		calls[0].Done(r.getSingle(ctx, calls[0].Request))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	gets := make([]*pb.RequestOp, len(calls))
	for i, c := range calls {
		gets[i] = opGet(c.Request)
	}
	resp, fence, err := r.readWithFence(ctx, math.MaxInt32, gets...)
	if err != nil {
		for _, c := range calls {
			c.Done(reading{}, err)
		}
		return
	}
	r.recordRevision(resp.Header.Revision)
	for i, c := range calls {
		c.Done(reading{kv: first(resp.Responses[i].GetResponseRange().Kvs), rev: resp.Header.Revision, fence: fence}, nil)
	}
}

// get reads a key linearizably. It retries until ctx ends.
func (r *reader) get(ctx context.Context, etcdKey []byte) (reading, error) {
	defer r.readers.Add(-1)
	if r.readers.Add(1) > 1 {
		// A batch has its own timeout, so this first attempt needs none.
		if answer, err := r.reads.Do(ctx, etcdKey); err == nil {
			return answer, nil
		}
	}
	return retry(ctx, r.retries, func(ctx context.Context) (reading, error) { return r.getSingle(ctx, etcdKey) })
}

func (r *reader) getSingle(ctx context.Context, etcdKey []byte) (reading, error) {
	resp, fence, err := r.readWithFence(ctx, math.MaxInt32, opGet(etcdKey))
	if err != nil {
		return reading{}, err
	}
	r.recordRevision(resp.Header.Revision)
	return reading{kv: first(resp.Responses[0].GetResponseRange().Kvs), rev: resp.Header.Revision, fence: fence}, nil
}

// readWithFence sends reads, and returns the fence of a closed store at the same revision. The comparison with an absent fence costs less
// than its read. A response of more than maxBytes is an error.
func (c *conn) readWithFence(ctx context.Context, maxBytes int, reads ...*pb.RequestOp) (*pb.TxnResponse, *mvccpb.KeyValue, error) {
	n := len(reads)
	resp, err := c.txnWithin(ctx, maxBytes, &pb.TxnRequest{
		Compare: []*pb.Compare{c.layout.fenceAt(0)}, Success: reads, Failure: append(reads[:n:n], c.layout.getFence()),
	})
	if err != nil || resp.Succeeded {
		return resp, nil, err
	}
	return resp, first(resp.Responses[n].GetResponseRange().Kvs), nil
}

// readError returns the error of a strong read in a store with a fence, or nil.
func readError(ctx context.Context, fence *mvccpb.KeyValue) error {
	if fence == nil {
		return nil
	}
	return driver.DecodeFence(string(fence.Value)).ReadError(ctx)
}

// Get implements driver.Driver.
func (r *reader) Get(ctx context.Context, consistency storage.ReadConsistency, k driver.Key) (*resourcepb.Resource, error) {
	ctx, done, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	etcdKey := r.layout.resource(k)
	var kv *mvccpb.KeyValue
	if consistency == storage.StrongConsistency {
		answer, err := r.get(ctx, etcdKey)
		if err == nil {
			err = readError(ctx, answer.fence)
		}
		if err != nil {
			return nil, err
		}
		kv = answer.kv
	} else {
		resp, err := eventually(ctx, r.conn, func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
			return r.kv.Get(ctx, string(etcdKey), opts...)
		})
		if err != nil {
			return nil, err
		}
		kv = first(resp.Kvs)
	}
	if kv == nil {
		return nil, nil
	}
	return r.layout.decodeValue(k, kv)
}
