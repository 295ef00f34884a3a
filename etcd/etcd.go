package etcd

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/internal/batch"
)

// Backend is a store in etcd. It has all capabilities: [storage.Pager], [storage.Resumer] and [storage.Transactor], its watches are
// [storage.Bookmarker]s, and [storage.As] finds its [history.Historian]. The Historian's revisions are etcd's own. Its Compact compacts
// the whole cluster, including the history of all other stores and programs.
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
	client     *clientv3.Client
	kv         clientv3.KV
	ranges     clientv3.KV // for lists: bounded in bytes
	txns       pb.KVClient // for transactions
	ownsClient bool        // the client is closed with the backend
	opts       Options
	layout     layout

	lifetime context.Context // ends with Close
	cancel   context.CancelCauseFunc
	mu       sync.RWMutex // held for reading while a call begins, for writing while Close does
	closed   bool
	calls    sync.WaitGroup

	newestRevision atomic.Int64 // the newest revision that any answer or delivered event has shown
	lastResponseAt atomic.Int64 // when an answer last came, in Unix nanoseconds
	oldest         atomic.Int64 // a revision before which all is known to be compacted
	fence          fence
	handle         [8]byte // random; the first half of every token
	counter        atomic.Uint64

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

// New opens the store under opts.Prefix, and creates it if there is none. The caller owns the client and closes it after the backend.
// A namespace of the client is ignored: opts.Prefix is the whole prefix of the keys.
// A nil opts selects the defaults. The context bounds this call only.
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
		return nil, err // returning b would give a non-nil interface with a nil pointer
	}
	return b, nil
}

// Open opens the store of a URL, etcd://host:port,host:port/prefix or etcds: for TLS, with its own client.
// README.md lists the parameters. The context bounds this call only.
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

func newBackend(ctx context.Context, client *clientv3.Client, opts Options, owned bool) (*Backend, error) {
	b := &handle{client: client, kv: leaderKV{clientv3.NewKV(client)},
		ranges: leaderKV{clientv3.NewKVFromKVClient(boundedKV{clientv3.RetryKVClient(client)}, client)}, txns: clientv3.RetryKVClient(client), ownsClient: owned, opts: opts, layout: newLayout(opts.Prefix)}
	_, _ = rand.Read(b.handle[:]) // never fails
	b.fence.init(b.layout.fenceKey(b.handle[0]))
	b.lifetime, b.cancel = context.WithCancelCause(context.Background())
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
	if b.ownsClient {
		if err := b.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("close the etcd client: %w", err)
		}
	}
	return nil
}
