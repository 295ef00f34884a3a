package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/telemetry"
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

// handle is an open store as a driver.
type handle struct {
	*conn
	*reader
	*writer
	lister
	revisionReader
	historian
	mover
}

var (
	_ driver.Driver[position]      = (*handle)(nil)
	_ driver.Historian[position]   = (*handle)(nil)
	_ driver.Snapshotter[position] = (*handle)(nil)
	_ driver.GuardedMover          = (*handle)(nil)
	_ driver.ColumnChecker         = (*handle)(nil)
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
	target.options.Telemetry = target.options.Telemetry.Or(telemetry.FromContext(ctx))
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

func newBackend(ctx context.Context, client *clientv3.Client, opts Options, ownsClient bool) (*Backend, error) {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, opts.Timeout)
		defer cancel()
	}
	c := newConn(client, opts, ownsClient)
	h := newHandle(c)
	var err error
	if c.layout.store, err = identify(ctx, c, h.sender.revocation); err != nil {
		c.cancel(nil)
		return nil, fmt.Errorf("open etcd: %w", err)
	}
	return &Backend{
		Backend: backend.New(h, backend.Options[position]{
			MaxSize:     opts.MaxSize,
			MaxOps:      (opts.MaxTxnOps - 1) / maxOpsEach,
			Timeout:     opts.Timeout,
			Outage:      opts.Outage,
			IdleTimeout: time.Minute,
			Telemetry:   c.Recorder,
			OnDelivered: func(ev *event) { c.raiseRevision(ev.At.rev) },
		}),
		handle: h,
	}, nil
}

func newHandle(c *conn) *handle {
	h := &handle{conn: c, reader: newReader(c), lister: lister{c}, revisionReader: revisionReader{c}, historian: historian{c}, mover: mover{c}}
	h.writer = newWriter(c, h.reader)
	return h
}

// StoreID implements driver.Driver.
func (h *handle) StoreID() driver.StoreID { return h.layout.store }

// Source implements driver.Driver.
func (h *handle) Source() driver.Source[position] { return newSource(h.conn) }

// Close implements driver.Driver.
func (h *handle) Close() error {
	h.end()
	h.sender.batches.Close()
	h.reads.Close()
	if h.ownsClient {
		if err := h.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
			return fmt.Errorf("close the etcd client: %w", err)
		}
	}
	return nil
}
