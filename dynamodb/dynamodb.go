package dynamodb

import (
	"context"
	"net/url"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/dynamodb/internal/request"
	"github.com/ashlar-dev/storage/dynamodb/internal/streams"
	"github.com/ashlar-dev/storage/telemetry"
)

// linger is how long the stream is read after the last watch was closed.
const linger = 30 * time.Second

// Backend is a store in a DynamoDB table. It implements [storage.Backend], [storage.Pager], [storage.Resumer] and
// [storage.Transactor].
type Backend struct {
	*backend.Backend[*streams.Position]
	handle *handle
}

var (
	_ storage.Backend    = (*Backend)(nil)
	_ storage.Pager      = (*Backend)(nil)
	_ storage.Resumer    = (*Backend)(nil)
	_ storage.Transactor = (*Backend)(nil)
)

// handle is an opened store as a driver. It embeds its parts.
type handle struct {
	*reader // Get, Children
	*lister // Scan, List, Page, Snapshot
	*writer // Apply
	*closer // Fence, SetFence, SetFenceAt
	*notes  // ReadNote, WriteNote, DeleteNote, Guards
	*columnChecker

	table   *table
	id      driver.StoreID
	source  source
	stop    context.CancelFunc // stops the handle's goroutines
	release func()             // closes the clients if the backend owns them
}

var (
	_ driver.Driver[*streams.Position]      = (*handle)(nil)
	_ driver.Pager[*streams.Position]       = (*handle)(nil)
	_ driver.Snapshotter[*streams.Position] = (*handle)(nil)
	_ driver.GuardedMover                   = (*handle)(nil)
	_ driver.ColumnChecker                  = (*handle)(nil)
)

// New opens a store with clients that the caller owns. The context bounds only the opening.
func New(ctx context.Context, db *dynamodb.Client, streamsClient *dynamodbstreams.Client, opts *Options) (*Backend, error) {
	if opts == nil {
		opts = &Options{}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	o, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, o.Timeout)
	defer cancel()
	t := &table{layout: layout{prefix: o.Prefix}, db: db, name: o.Table, clock: request.NewClock(), opts: &o}
	t.start(&o)
	id, err := setup{t}.open(ctx)
	if err != nil {
		return nil, err
	}
	h, err := newHandle(t, id, streamsClient)
	if err != nil {
		return nil, err
	}
	return &Backend{
		Backend: backend.New(h, backend.Options[*streams.Position]{
			MaxSize: o.MaxSize, MaxOps: maxOps, Timeout: o.Timeout, Outage: o.Outage, IdleTimeout: linger,
			UnboundedFence: true, Telemetry: t.Recorder,
			OnDelivered: func(ev *streams.Event) { h.marks.noteState(ev.Key, ev.At.Count(), !ev.Delete) },
		}),
		handle: h,
	}, nil
}

// newHandle composes the parts.
func newHandle(t *table, id driver.StoreID, client *dynamodbstreams.Client) (*handle, error) {
	life, stop := context.WithCancel(context.Background())
	r := newReader(t)
	registry, notes := newRegistry(t, id), newNotes(t)
	lease := newWriteLease(life, t, registry)
	r.lease = lease
	config := streams.Config{
		Client: client, Table: records{r}, Name: t.name, Clock: t.clock, StoreID: id,
		Timeout: t.opts.Timeout, Outage: t.opts.Outage, Poll: t.opts.Poll, IdlePoll: t.opts.IdlePoll,
		Lag: &t.lag,
	}
	var stream streams.Stream = streams.NewSource(config)
	release := func() {}
	if t.opts.Relay != nil {
		config.Silence = t.opts.Relay.silence()
		node, err := t.startRelay(config, func(ctx context.Context, o *Options) (storage.Backend, error) {
			b, err := New(ctx, t.db, client, o)
			if err != nil {
				return nil, err // not b, a nil pointer of a concrete type
			}
			return b, nil
		})
		if err != nil {
			stop()
			return nil, err
		}
		stream, release = streams.NewSubscriber(config, node), node.Close
	}
	return &handle{
		reader:        r,
		lister:        &lister{reader: r, registry: registry, source: stream, pageItems: defaultPageItems, pageBytes: driver.PageBytes},
		writer:        &writer{table: t, reader: r, registry: registry, notes: notes, lease: lease, onChange: stream.Wake},
		closer:        &closer{table: t, notes: notes, lease: lease},
		notes:         notes,
		columnChecker: &columnChecker{table: t, reader: r, pageBytes: driver.PageBytes},
		table:         t, id: id, source: source{stream, lease}, stop: stop, release: release,
	}, nil
}

// StoreID implements driver.Driver.
func (h *handle) StoreID() driver.StoreID { return h.id }

// Source implements driver.Driver.
func (h *handle) Source() driver.Source[*streams.Position] { return h.source }

// Close implements driver.Driver.
func (h *handle) Close() error {
	h.stop()
	h.reader.close()
	h.lister.registry.batcher.Close()
	h.release()
	return nil
}

// Open opens the store of a dynamodb: URL with clients of its own. The package comment describes the URL.
func Open(ctx context.Context, u *url.URL) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	opts, s, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	opts.Telemetry = opts.Telemetry.Or(telemetry.FromContext(ctx))
	cfg, transport, err := s.load(ctx)
	if err != nil {
		return nil, err
	}
	b, err := New(ctx,
		dynamodb.NewFromConfig(cfg, func(o *dynamodb.Options) { s.apply(&o.BaseEndpoint) }),
		dynamodbstreams.NewFromConfig(cfg, func(o *dynamodbstreams.Options) { s.apply(&o.BaseEndpoint) }),
		opts)
	if err != nil {
		transport.CloseIdleConnections()
		return nil, err
	}
	release := b.handle.release
	b.handle.release = func() {
		release()
		transport.CloseIdleConnections()
	}
	return b, nil
}

func init() {
	storage.Register("dynamodb", func(ctx context.Context, u *url.URL) (storage.Backend, error) {
		b, err := Open(ctx, u)
		if err != nil {
			return nil, err // not b, a nil pointer of a concrete type
		}
		return b, nil
	})
}
