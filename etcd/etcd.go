package etcd

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/internal/dial"
)

// Options are what New needs besides a client. The zero value of each field means its default.
type Options struct {
	// Prefix is what all keys of the store begin with: "ashlar".
	Prefix string
	// Timeout bounds calls whose context has no deadline: 30 seconds.
	Timeout time.Duration
	// MaxSize is the largest resource in bytes: 1 MiB, which is also the most.
	MaxSize int
	// MaxTxnOps is the servers' --max-txn-ops: 128. It must not be less than 100.
	MaxTxnOps int
	// MaxRequestBytes is the servers' --max-request-bytes: 1.5 MiB, which is also the least.
	MaxRequestBytes int
	// Outage is how long watches wait for a cluster that is out of reach: 5 minutes.
	Outage time.Duration
	// NoCreate refuses a prefix under which there is no store, instead of making one.
	NoCreate bool
}

// The defaults of Options, and its bounds.
const (
	defaultPrefix   = "ashlar"
	maxPrefix       = 255
	defaultTimeout  = 30 * time.Second
	defaultOutage   = 5 * time.Minute
	defaultTxnOps   = 128
	minTxnOps       = 100 // a transaction of 32 operations takes up to 3 each
	defaultRequest  = 3 << 19
	dialTimeout     = 5 * time.Second
	attemptTimeout  = 8 * time.Second // a little more than a member takes to say that it has no quorum
	requestOverhead = 64 << 10        // what is left free of a request's bytes for its framing
)

func (o *Options) fill() error {
	if o.Prefix == "" {
		o.Prefix = defaultPrefix
	}
	if strings.IndexByte(o.Prefix, 0) >= 0 {
		return fmt.Errorf("%w: the key prefix holds a NUL byte", storage.ErrInvalid)
	}
	if len(o.Prefix) > maxPrefix {
		return fmt.Errorf("%w: the key prefix has %d bytes, the most is %d", storage.ErrInvalid, len(o.Prefix), maxPrefix)
	}
	if o.Timeout <= 0 {
		o.Timeout = defaultTimeout
	}
	if o.Outage <= 0 {
		o.Outage = defaultOutage
	}
	if o.MaxTxnOps == 0 {
		o.MaxTxnOps = defaultTxnOps
	}
	if o.MaxTxnOps < minTxnOps {
		return fmt.Errorf("%w: max-txn-ops is %d, expected %d or more", storage.ErrInvalid, o.MaxTxnOps, minTxnOps)
	}
	if o.MaxRequestBytes == 0 {
		o.MaxRequestBytes = defaultRequest
	}
	if o.MaxRequestBytes < defaultRequest {
		return fmt.Errorf("%w: max-request-bytes is %d, expected %d or more", storage.ErrInvalid, o.MaxRequestBytes, defaultRequest)
	}
	return nil
}

// Backend is a store in etcd. It has all capabilities: [storage.Pager], [storage.Resumer] and [storage.Transactor], its watches are
// [storage.Bookmarker]s, and [storage.As] finds its [storage.Historian]. That one's revisions are etcd's, and its Compact compacts the
// whole cluster, with all other stores and programs in it.
type Backend struct {
	*backend.Backend[position]
	handle *handle
}

var (
	_ storage.Backend    = (*Backend)(nil)
	_ storage.Pager      = (*Backend)(nil)
	_ storage.Resumer    = (*Backend)(nil)
	_ storage.Transactor = (*Backend)(nil)
)

// handle is an opened store as a driver.
type handle struct {
	client *clientv3.Client
	kv     clientv3.KV
	ranges clientv3.KV // for lists: bounded in bytes
	txns   pb.KVClient // for transactions
	owned  bool        // the client is closed with the backend
	opts   Options
	layout layout

	life   context.Context // ends with Close
	cancel context.CancelCauseFunc
	mu     sync.RWMutex // held for reading while a call begins, for writing while Close does
	closed bool
	calls  sync.WaitGroup

	seen    atomic.Int64 // the newest revision that any answer or delivered event has shown
	seenAt  atomic.Int64 // when an answer last came, in Unix nanoseconds
	oldest  atomic.Int64 // a revision before which all is known to be compacted
	fence   fence
	handle  [8]byte // random; the first half of every token
	counter atomic.Uint64

	writes  *batch.Batcher[*mutation, outcome]
	reads   *batch.Batcher[[]byte, reading]
	writers atomic.Int64 // calls under way: a lone one needs no batcher, and is spared the way to it and back
	readers atomic.Int64
}

var (
	_ driver.Driver[position]      = (*handle)(nil)
	_ driver.Historian[position]   = (*handle)(nil)
	_ driver.Snapshotter[position] = (*handle)(nil)
	_ driver.GuardedMover          = (*handle)(nil)
)

func init() {
	storage.Register("etcd", open)
	storage.Register("etcds", open)
}

// New returns the store under opts.Prefix, making it if need be. The caller keeps the client and closes it after the backend.
// Keys are what opts.Prefix says, also where the client was given a namespace.
// A nil opts means the defaults. The context bounds this call only.
func New(ctx context.Context, client *clientv3.Client, opts *Options) (*Backend, error) {
	if client == nil {
		return nil, fmt.Errorf("%w: the etcd client is nil", storage.ErrInvalid)
	}
	var o Options
	if opts != nil {
		o = *opts
	}
	if err := o.fill(); err != nil {
		return nil, err
	}
	return newBackend(ctx, client, o, false)
}

func open(ctx context.Context, u *url.URL) (storage.Backend, error) {
	b, err := Open(ctx, u)
	if err != nil {
		return nil, err // not b, which is a nil pointer
	}
	return b, nil
}

// Open opens the store that a URL names, with a client of its own: etcd://host:port,host:port/prefix, or etcds: for TLS.
// README.md lists the parameters. The context bounds the opening only.
func Open(ctx context.Context, u *url.URL) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	target, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	client, err := newClient(ctx, target)
	if err != nil {
		return nil, fmt.Errorf("open etcd: %w", err)
	}
	b, err := newBackend(ctx, client, target.options, true)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	return b, nil
}

// newClient makes a client that notices a server which has fallen silent within a quarter of a minute. With a user name it asks
// for a token at once, so a cluster that is out of reach is found here, else at the first request.
func newClient(ctx context.Context, target *target) (*clientv3.Client, error) {
	var config *tls.Config
	if target.tls != nil {
		var err error
		if config, err = target.tls.config(); err != nil {
			return nil, err
		}
	}
	patience := target.dialTimeout
	if end, has := ctx.Deadline(); has {
		patience = min(patience, max(time.Until(end), time.Millisecond))
	}
	var how []grpc.DialOption
	if f := dial.From(ctx); f != nil {
		how = append(how, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) { return f(ctx, "tcp", address) }))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            target.endpoints,
		TLS:                  config,
		Username:             target.user,
		Password:             target.password,
		DialTimeout:          patience,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		MaxCallSendMsgSize:   target.options.MaxRequestBytes + requestOverhead,
		Logger:               zap.NewNop(), // what matters is returned as an error
		DialOptions: append(how, grpc.WithConnectParams(grpc.ConnectParams{
			// gRPC's own backoff goes up to two minutes, for which a server that is back would stand unused.
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 3 * time.Second},
			MinConnectTimeout: target.dialTimeout,
		}), grpc.WithChainUnaryInterceptor(failFast)),
	})
	switch {
	case err == nil:
		return client, nil
	case fateOf(err) == refused:
		return nil, err // a wrong password, for one
	}
	return nil, unavailable(ctx, err)
}

// failFast has a request fail while there is no connection, where the client would have it wait without a word: so the error
// can say why there is none, and a write is known not to have been sent.
func failFast(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	return invoke(ctx, method, req, reply, conn, append(opts, grpc.WaitForReady(false))...)
}

func newBackend(ctx context.Context, client *clientv3.Client, opts Options, owned bool) (*Backend, error) {
	b := &handle{client: client, kv: leaderKV{clientv3.NewKV(client)},
		ranges: leaderKV{clientv3.NewKVFromKVClient(boundedKV{clientv3.RetryKVClient(client)}, client)}, txns: clientv3.RetryKVClient(client), owned: owned, opts: opts, layout: newLayout(opts.Prefix)}
	_, _ = rand.Read(b.handle[:]) // never fails
	b.fence.init(b.layout.fenceKey(b.handle[0]))
	b.life, b.cancel = context.WithCancelCause(context.Background())
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opts.Timeout)
		defer cancel()
	}
	if err := b.identify(ctx); err != nil {
		b.cancel(nil)
		return nil, fmt.Errorf("open etcd: %w", err)
	}
	b.writes = newWrites(b)
	b.reads = newReads(b)
	return &Backend{
		Backend: backend.New(b, backend.Options[position]{
			MaxSize:     opts.MaxSize,
			MaxOps:      (opts.MaxTxnOps - 1) / maxOpsEach,
			Timeout:     opts.Timeout,
			Outage:      opts.Outage,
			Linger:      time.Minute,
			OnDelivered: func(ev *event) { b.saw(ev.At.rev) },
		}),
		handle: b,
	}, nil
}

// StoreID implements driver.Driver.
func (b *handle) StoreID() driver.StoreID { return b.layout.store }

// Source implements driver.Driver.
func (b *handle) Source() driver.Source[position] { return newSource(b) }

// begin starts a call: its context ends with the handle.
func (b *handle) begin(ctx context.Context) (context.Context, func(), error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return nil, nil, storage.ErrClosed
	}
	b.calls.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.life, func() { cancel(storage.ErrClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		b.calls.Done()
	}, nil
}

// saw notes a revision that an answer or an event has shown.
func (b *handle) saw(rev int64) {
	for {
		old := b.seen.Load()
		if rev <= old || b.seen.CompareAndSwap(old, rev) {
			return
		}
	}
}

// answered notes the revision of an answer from the cluster's log.
func (b *handle) answered(rev int64) {
	b.saw(rev)
	b.seenAt.Store(time.Now().UnixNano())
}

// token returns a token that no other write has.
func (b *handle) token() token {
	var t token
	copy(t[:], b.handle[:])
	binary.BigEndian.PutUint64(t[8:], b.counter.Add(1))
	return t
}

// Close implements driver.Driver.
func (b *handle) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel(storage.ErrClosed)
	b.calls.Wait()
	b.writes.Close()
	b.reads.Close()
	if b.owned {
		if err := b.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("close the etcd client: %w", err)
		}
	}
	return nil
}
