package etcd

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/telemetry"
)

// conn is the connection of a handle to the cluster, with the newest revision that the handle has seen.
type conn struct {
	client     *clientv3.Client
	kv         clientv3.KV
	ranges     clientv3.KV // for lists: limits the bytes of a response
	txns       pb.KVClient // for transactions
	ownsClient bool        // the handle closes the client
	opts       Options
	layout     layout
	recorder

	lifetime context.Context // ends with Close
	cancel   context.CancelCauseFunc
	mu       sync.RWMutex // read-locked while a call starts, locked while Close marks the handle as closed
	closed   bool
	calls    sync.WaitGroup

	newestRevision atomic.Int64 // the newest revision of any response or delivered event
	lastResponseAt atomic.Int64 // the time of the last linearizable response, in Unix nanoseconds
	oldest         atomic.Int64 // all revisions before it are known to be compacted
}

func newConn(client *clientv3.Client, opts Options, ownsClient bool) *conn {
	kv := clientv3.RetryKVClient(client)
	c := &conn{
		client: client, kv: leaderKV{clientv3.NewKV(client)}, ranges: leaderKV{clientv3.NewKVFromKVClient(responseLimitKV{kv}, client)}, txns: kv,
		ownsClient: ownsClient, opts: opts, layout: newLayout(opts.Prefix),
	}
	c.recorder.start(&c.opts, &c.newestRevision)
	c.lifetime, c.cancel = context.WithCancelCause(context.Background())
	return c
}

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
func retry[T any](ctx context.Context, retries *telemetry.Series, request func(context.Context) (T, error)) (T, error) {
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
		retries.Add(ctx, 1)
		if !pause(ctx, attempt) {
			return none, unavailable(ctx, cause)
		}
	}
}

// begin starts a call. The returned context ends when the handle is closed.
func (c *conn) begin(ctx context.Context) (context.Context, func(), error) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.closed {
		return nil, nil, storage.ErrClosed
	}
	c.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(c.lifetime, func() { cancel(storage.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		c.calls.Done()
	}, nil
}

// end ends the contexts of all calls and waits for the calls. Later calls fail with storage.ErrClosed.
func (c *conn) end() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel(storage.ErrClosed)
	c.calls.Wait()
}

// raiseRevision raises the newest known revision to that of a response or an event.
func (c *conn) raiseRevision(rev int64) {
	for {
		old := c.newestRevision.Load()
		if rev <= old || c.newestRevision.CompareAndSwap(old, rev) {
			return
		}
	}
}

// recordRevision records the revision of a linearizable response.
func (c *conn) recordRevision(rev int64) {
	c.raiseRevision(rev)
	c.lastResponseAt.Store(time.Now().UnixNano())
}

// compactedBefore records that all revisions before rev are compacted.
func (c *conn) compactedBefore(rev int64) {
	for {
		old := c.oldest.Load()
		if rev <= old || c.oldest.CompareAndSwap(old, rev) {
			return
		}
	}
}

// recentEnough is the maximum age of the newest known revision. A write reads a newer one if it is older. It must be well below the
// retention of a cluster's history.
const recentEnough = 30 * time.Second

// recent returns a revision from before the call. A write sent later, if applied, is in the history after that revision.
func (c *conn) recent(ctx context.Context) (int64, error) {
	if time.Since(time.Unix(0, c.lastResponseAt.Load())) < recentEnough {
		return c.newestRevision.Load(), nil
	}
	if _, err := c.revision(ctx); err != nil {
		return 0, err
	}
	return c.newestRevision.Load(), nil
}

// revision returns the revision of the cluster, by a linearizable read.
func (c *conn) revision(ctx context.Context) (int64, error) {
	resp, err := retry(ctx, c.retries, func(ctx context.Context) (*clientv3.GetResponse, error) {
		return c.kv.Get(ctx, c.layout.storeKey(), clientv3.WithCountOnly())
	})
	if err != nil {
		return 0, err
	}
	c.recordRevision(resp.Header.Revision)
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

// responseLimitKV rejects responses of more than maxResponseBytes before it reads them into memory.
type responseLimitKV struct{ pb.KVClient }

// Range implements pb.KVClient.
func (kv responseLimitKV) Range(ctx context.Context, in *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	return kv.KVClient.Range(ctx, in, append(opts, grpc.MaxCallRecvMsgSize(maxResponseBytes))...)
}

// retryRead repeats a read that reads one revision in several requests, if the revision is compacted in between. It does not repeat a read
// of a cluster that went back.
func retryRead[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for attempt := 0; ; attempt++ {
		answer, err := read()
		if !errors.Is(err, storage.ErrCompacted) || errors.Is(err, errWentBack) {
			return answer, err
		}
		if !pause(ctx, attempt) {
			return answer, unavailable(ctx, err)
		}
	}
}

// call runs do with a context that ends when the handle is closed.
func (c *conn) call(ctx context.Context, do func(ctx context.Context) error) error {
	ctx, done, err := c.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	return do(ctx)
}

// eventually sends a serializable read to any member. It repeats the read linearizably if it fails or its revision is older than one
// this handle has seen.
func eventually(ctx context.Context, c *conn, read func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)) (*clientv3.GetResponse, error) {
	attemptCtx, cancel := context.WithTimeout(ctx, attemptTimeout)
	resp, err := read(attemptCtx, clientv3.WithSerializable())
	cancel()
	if err == nil && resp.Header.Revision >= c.newestRevision.Load() {
		c.raiseRevision(resp.Header.Revision)
		return resp, nil
	}
	return linearizably(ctx, c, read)
}

// linearizably sends a read linearizably. It retries until ctx ends.
func linearizably(ctx context.Context, c *conn, read func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error)) (*clientv3.GetResponse, error) {
	resp, err := retry(ctx, c.retries, func(ctx context.Context) (*clientv3.GetResponse, error) { return read(ctx) })
	if err != nil {
		return nil, err
	}
	c.recordRevision(resp.Header.Revision)
	return resp, nil
}

// txn sends a transaction to a member that knows a leader. It uses etcd's protocol messages, because the client's operations are large
// structs that copy each key and value once more, which is much of the cost of a batch.
func (c *conn) txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	return c.txnWithin(ctx, math.MaxInt32, req)
}

// txnWithin is txn with a limit of the response's size in bytes.
func (c *conn) txnWithin(ctx context.Context, maxBytes int, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	resp, err := c.txns.Txn(clientv3.WithRequireLeader(ctx), req, grpc.ForceCodecV2(protoCodec{}), grpc.MaxCallRecvMsgSize(maxBytes))
	if err != nil {
		return nil, clientv3.ContextError(ctx, err)
	}
	return resp, nil
}
