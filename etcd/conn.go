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

// pause waits before another attempt, longer each time, and returns false once ctx has ended.
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

// retry carries out a request that may be sent any number of times, until it is answered or ctx ends. The request gets a
// context of its own for each attempt, so that a member which has fallen silent does not use up the time of the others.
func retry[T any](ctx context.Context, request func(context.Context) (T, error)) (T, error) {
	var none T
	var cause error // the last that says more than that there was no time
	for attempt := 0; ; attempt++ {
		one, cancel := context.WithTimeout(ctx, attemptTimeout)
		answer, err := request(one)
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

// begin starts a call: its context ends with the handle.
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

// saw notes a revision that an answer or an event has shown.
func (b *handle) saw(rev int64) {
	for {
		old := b.newestRevision.Load()
		if rev <= old || b.newestRevision.CompareAndSwap(old, rev) {
			return
		}
	}
}

// recordRevision notes the revision of an answer from the cluster's log.
func (b *handle) recordRevision(rev int64) {
	b.saw(rev)
	b.lastResponseAt.Store(time.Now().UnixNano())
}

// recentEnough is how old the newest known revision may be before a write asks for a newer one. It must be well below the time
// for which a cluster keeps its history.
const recentEnough = 30 * time.Second

// recent returns a revision from before now, so that a write which is sent now can be looked for in the history after it.
func (b *handle) recent(ctx context.Context) (int64, error) {
	if time.Since(time.Unix(0, b.lastResponseAt.Load())) < recentEnough {
		return b.newestRevision.Load(), nil
	}
	if _, err := b.revision(ctx); err != nil {
		return 0, err
	}
	return b.newestRevision.Load(), nil
}

// revision returns the cluster's revision, linearizably.
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

// leaderKV asks only members that know a leader. Without that, a member that is cut off keeps a request for seven seconds
// before it says that it cannot carry it out, while another could have done so at once.
type leaderKV struct{ clientv3.KV }

// Get is the client's. A serializable read is what a member without a leader can still answer.
func (kv leaderKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	if op := clientv3.OpGet(key, opts...); !op.IsSerializable() {
		ctx = clientv3.WithRequireLeader(ctx)
	}
	return kv.KV.Get(ctx, key, opts...)
}

// Put is the client's.
func (kv leaderKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	return kv.KV.Put(clientv3.WithRequireLeader(ctx), key, value, opts...)
}

// boundedKV refuses answers of more than maxResponseBytes when their first bytes have come.
type boundedKV struct{ pb.KVClient }

// Range is the client's.
func (kv boundedKV) Range(ctx context.Context, in *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	return kv.KVClient.Range(ctx, in, append(opts, grpc.MaxCallRecvMsgSize(maxResponseBytes))...)
}

// retryRead repeats what reads one revision in several steps, should that revision be compacted in between.
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

// call runs do with a context that ends with the handle.
func (b *handle) call(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return do(ctx)
}

// eventually carries out a read on whatever member comes first, and again linearizably where that one is behind what this
// handle has shown already.
func eventually(ctx context.Context, b *handle, read func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)) (*clientv3.GetResponse, error) {
	one, cancel := context.WithTimeout(ctx, attemptTimeout)
	resp, err := read(one, clientv3.WithSerializable())
	cancel()
	if err == nil && resp.Header.Revision >= b.newestRevision.Load() {
		b.saw(resp.Header.Revision)
		return resp, nil
	}
	return linearizably(ctx, b, read)
}

func linearizably(ctx context.Context, b *handle, read func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)) (*clientv3.GetResponse, error) {
	resp, err := retry(ctx, func(ctx context.Context) (*clientv3.GetResponse, error) { return read(ctx) })
	if err != nil {
		return nil, err
	}
	b.recordRevision(resp.Header.Revision)
	return resp, nil
}

// A transaction is sent as etcd's protocol has it. The client's own operations are large structs and would copy each key and
// value once more on the way, which is much of what a batch costs.

// txn carries out a transaction on a member that knows a leader.
func (b *handle) txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := b.txns.Txn(clientv3.WithRequireLeader(ctx), req, grpc.ForceCodecV2(protoCodec{}), grpc.MaxCallRecvMsgSize(math.MaxInt32))
	if err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	return resp, nil
}
