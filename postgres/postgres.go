package postgres

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/internal/dial"
	"github.com/ashlar-dev/storage/telemetry"
)

func init() {
	open := func(ctx context.Context, u *url.URL) (storage.Backend, error) {
		b, err := Open(ctx, u)
		if err != nil {
			return nil, err
		}
		return b, nil
	}
	storage.Register("postgres", open)
	storage.Register("postgresql", open)
}

// Backend is a store in a Postgres database. It implements storage.Backend, Pager, Resumer and Transactor, it is a history.Historian
// (found by storage.As), and its watches are storage.Bookmarkers.
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

// handle is an open store as a driver. Its parts do not refer to it.
type handle struct {
	*reader
	*lister
	*historian
	*writer
	*notes
	*fence
	database *database
	source   *source
	notifier *notifier
	running  sync.WaitGroup
}

var (
	_ driver.Driver[position] = (*handle)(nil)
	_ driver.GuardedMover     = (*handle)(nil)
	_ driver.Bulk             = (*handle)(nil)

	_ driver.Historian[position] = (*handle)(nil)
)

// New returns a backend that uses a pool, whose configuration Prepare has adapted. The caller closes the pool after the backend.
// In addition to the pool's connections, the backend opens up to three connections with the pool's configuration: one listens, one
// reads changes, and one notifies.
func New(ctx context.Context, pool *pgxpool.Pool, opts *Options) (*Backend, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil", storage.ErrInvalid)
	}
	o := opts.withDefaults()
	if err := checkSchema(o.Schema); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Listen == nil {
		o.Listen = pool.Config().ConnConfig
	}
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	d, err := newDatabase(pool, o)
	if err != nil {
		return nil, err
	}
	if err := d.open(ctx); err != nil {
		d.close()
		return nil, fmt.Errorf("schema %q: %w", o.Schema, err)
	}
	h := newHandle(d)
	return &Backend{
		Backend: backend.New(h, backend.Options[position]{
			MaxSize: o.MaxSize, MaxOps: maxOps, Timeout: o.Timeout, Outage: o.Outage, IdleTimeout: time.Minute, Telemetry: d.telemetry.Recorder,
		}),
		handle: h,
	}, nil
}

func newHandle(d *database) *handle {
	log, in, n, journal := &history{database: d}, new(currentInbox), newNotifier(d), &notes{d}
	tips, past := newFrontier(log), newHistorian(d, log, in)
	h := &handle{
		reader: newReader(d, tips), lister: &lister{d, tips, past.pages.readAt}, historian: past, writer: newWriter(d, in, n), notes: journal, fence: &fence{journal},
		database: d, source: &source{database: d, history: log, inbox: in, notifier: n}, notifier: n,
	}
	h.writer.reader = h.reader
	h.running.Go(n.notify)
	h.running.Go(d.watchGrowth)
	h.running.Go((&retention{d, log}).run)
	return h
}

// StoreID implements driver.Driver.
func (h *handle) StoreID() driver.StoreID { return *h.database.id.Load() }

// Source implements driver.Driver.
func (h *handle) Source() driver.Source[position] { return h.source }

// closeGrace is the time that Close gives to running calls for their answers from the database.
const closeGrace = 2 * time.Second

// Close implements driver.Driver.
func (h *handle) Close() error {
	h.database.end()
	defer h.database.abort()
	defer time.AfterFunc(closeGrace, h.database.abort).Stop()
	h.writer.batch.Close()
	h.reader.batch.Close()
	h.finality.batch.Close()
	h.reader.frontier.batch.Close()
	h.keys.batch.Close()
	h.running.Wait()
	h.notifier.finish(closeGrace)
	h.database.close()
	return nil
}

// Open opens the store that a URL names:
//
//	postgres://user:password@host:port/database?schema=ashlar&…
//
// The README of the package lists the parameters. Parameters that the URL omits come from PGHOST, PGPASSFILE, PGSERVICE and the
// other variables of libpq.
func Open(ctx context.Context, u *url.URL) (*Backend, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	t, err := parseURL(u)
	if err != nil {
		return nil, err
	}
	return t.open(ctx)
}

func (t *target) open(ctx context.Context) (*Backend, error) {
	t.opts.Telemetry = t.opts.Telemetry.Or(telemetry.FromContext(ctx))
	if f := dial.From(ctx); f != nil {
		t.dialWith(f)
	}
	pools, err := t.connect(ctx)
	if err == nil {
		var b *Backend
		if b, err = New(ctx, pools[0], &t.opts); err == nil {
			b.handle.database.pools = pools
			return b, nil
		}
	}
	for _, pool := range pools {
		pool.Close()
	}
	return nil, err
}
