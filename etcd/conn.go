package etcd

import (
	"context"
	"errors"
	"math"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
)

// pause waits before the next attempt, longer with each attempt. It returns false if ctx has ended.
func pause(ctx context.Context, attempt int) bool {
	d := min(10*time.Millisecond<<min(attempt, 6), 500*time.Millisecond)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// retry sends an idempotent request until it is answered or ctx ends. Each attempt has its own timeout, so an unresponsive member does
// not use up the time for the others.
func retry[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	var none T
	var cause error // the last error other than a timeout, if there was one
	for attempt := 0; ; attempt++ {
		attemptCtx, cancel := context.WithTimeout(ctx, attemptTimeout)
		answer, err := request(attemptCtx)
		cancel()
		if err == nil {
			return answer, nil
		}
		if cause == nil || !errors.Is(err, context.DeadlineExceeded) {
			cause = err
		}
		if ctx.Err() != nil {
			return none, unavailable(ctx, cause)
		}
		if final(err, attempt) {
			return none, translate(err)
		}
		if !pause(ctx, attempt) {
			return none, unavailable(ctx, cause)
		}
	}
}

// begin starts a call. The returned context ends when the handle is closed.
func (b *handle) begin(ctx context.Context) (context.Context, func(), error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return nil, nil, storage.ErrClosed
	}
	b.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.lifetime, func() { cancel(storage.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		b.calls.Done()
	}, nil
}

// saw records the revision of a response or an event.
func (b *handle) saw(rev int64) {
	for {
		old := b.newestRevision.Load()
		if rev <= old || b.newestRevision.CompareAndSwap(old, rev) {
			return
		}
	}
}

// recordRevision records the revision of a linearizable response.
func (b *handle) recordRevision(rev int64) {
	b.saw(rev)
	b.lastResponseAt.Store(time.Now().UnixNano())
}

// recentEnough is the maximum age of the newest known revision. A write reads a newer one if it is older. It must be well below the time
// for which a cluster retains history.
const recentEnough = 30 * time.Second

// recent returns a revision from before the call. A write sent later, if applied, is in the history after that revision.
func (b *handle) recent(ctx context.Context) (int64, error) {
	if time.Since(time.Unix(0, b.lastResponseAt.Load())) < recentEnough {
		return b.newestRevision.Load(), nil
	}
	if _, err := b.revision(ctx); err != nil {
		return 0, err
	}
	return b.newestRevision.Load(), nil
}

// revision returns the revision of the cluster, by a linearizable read.
func (b *handle) revision(ctx context.Context) (int64, error) {
	resp, err := retry(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return b.kv.Get(ctx, b.layout.storeKey(), clientv3.WithCountOnly())
	})
	if err != nil {
		return 0, err
	}
	b.recordRevision(resp.Header.Revision)
	return resp.Header.Revision, nil
}

// leaderKV makes members without a leader reject a request at once, so the client can send it to another member. By default a
// partitioned member holds a request for seven seconds before it returns an error.
type leaderKV struct{ clientv3.KV }

// Get implements clientv3.KV. Members without a leader can answer serializable reads.
func (kv leaderKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if op := clientv3.OpGet(key, opts...); !op.IsSerializable() {
		ctx = clientv3.WithRequireLeader(ctx)
	}
	return kv.KV.Get(ctx, key, opts...)
}

// Put implements clientv3.KV.
func (kv leaderKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return kv.KV.Put(clientv3.WithRequireLeader(ctx), key, value, opts...)
}

// boundedKV rejects responses of more than maxResponseBytes before it reads them into memory.
type boundedKV struct{ pb.KVClient }

// Range implements pb.KVClient.
func (kv boundedKV) Range(ctx context.Context, in *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	return kv.KVClient.Range(ctx, in, append(opts, grpc.MaxCallRecvMsgSize(maxResponseBytes))...)
}

// retryRead repeats a read that reads one revision in several requests, if the revision is compacted in between.
func retryRead[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for attempt := 0; ; attempt++ {
		answer, err := read()
		if !errors.Is(err, storage.ErrCompacted) {
			return answer, err
		}
		if !pause(ctx, attempt) {
			return answer, unavailable(ctx, err)
		}
	}
}

// call runs do with a context that ends when the handle is closed.
func (b *handle) call(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return do(ctx)
}

// eventually sends a serializable read to any member. It repeats the read linearizably if it fails or its revision is older than one
// this handle has seen.
func eventually(ctx context.Context, b *handle, read func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)) (*clientv3.GetResponse, error) {
	attemptCtx, cancel := context.WithTimeout(ctx, attemptTimeout)
	resp, err := read(attemptCtx, clientv3.WithSerializable())
	cancel()
	if err == nil && resp.Header.Revision >= b.newestRevision.Load() {
		b.saw(resp.Header.Revision)
		return resp, nil
	}
	return linearizably(ctx, b, read)
}

// linearizably sends a read linearizably. It retries until ctx ends.
func linearizably(ctx context.Context, b *handle, read func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)) (*clientv3.GetResponse, error) {
	resp, err := retry(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return read(ctx) })
	if err != nil {
		return nil, err
	}
	b.recordRevision(resp.Header.Revision)
	return resp, nil
}

// txn sends a transaction to a member that knows a leader. It uses etcd's protocol messages, because the client's operations are large
// structs that copy each key and value once more, which is much of the cost of a batch.
func (b *handle) txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := b.txns.Txn(clientv3.WithRequireLeader(ctx), req, grpc.ForceCodecV2(protoCodec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	return resp, nil
}
