package postgres

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
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

// Options of a backend. The zero value of each field means its default, as in the table of the URL's parameters.
type Options struct {
	// Schema that holds the store: "ashlar".
	Schema string
	// NoCreate refuses a store that is not there, or whose schema is older, instead of creating or upgrading it.
	NoCreate bool
	// MaxSize is the largest resource in bytes: 1 MiB.
	MaxSize int
	// Timeout of calls whose context has no deadline: 30 s.
	Timeout time.Duration
	// Outage is how long watches wait for a database that is away: 5 min.
	Outage time.Duration
	// Retention is how long changes are kept for watches to resume from: 1 h. At least it is driver.TokenLifetime, for which pages and the
	// snapshots of watches need them.
	Retention time.Duration
	// Poll is how often watches look for changes that nobody announced: 1 s, or 100 ms with NoListen.
	Poll time.Duration
	// NoListen does without LISTEN: changes of other processes are found by polling only.
	NoListen bool
	// Listen is where to LISTEN, if not where the pool connects to: LISTEN needs a session, which PgBouncer's transaction mode
	// does not give.
	Listen *pgx.ConnConfig
	// Replica, if set, answers eventual reads and lists where it is fresh enough. The caller closes it.
	Replica *pgxpool.Pool

	forgetful time.Duration // for tests: instead of Retention
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	d.Schema = cmp.Or(d.Schema, defaultSchema)
	if d.MaxSize <= 0 || d.MaxSize > driver.MaxSize {
		d.MaxSize = driver.MaxSize
	}
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	or(&d.Timeout, 30*time.Second)
	or(&d.Outage, 5*time.Minute)
	or(&d.Retention, time.Hour)
	d.Retention = cmp.Or(d.forgetful, max(d.Retention, driver.TokenLifetime))
	if d.NoListen {
		or(&d.Poll, 100*time.Millisecond)
	}
	or(&d.Poll, time.Second)
	return d
}

const defaultSchema = "ashlar"

// Backend is a store in a Postgres database. It implements storage.Backend, Pager, Resumer and Transactor, it is a storage.Historian
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

// maxOps bounds a transaction. Postgres itself has no such limit.
const maxOps = 512

// handle is an opened store as a driver: its parts, which do not know it.
type handle struct {
	*reader
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
	_ driver.Lister           = (*handle)(nil)
	_ driver.GuardedMover     = (*handle)(nil)
	_ driver.BulkReader       = (*handle)(nil)
	_ driver.Loader           = (*handle)(nil)

	_ driver.Historian[position] = (*handle)(nil)
)

// New returns a backend over a pool, which stays the caller's: close it after the backend. Beside the pool's connections the
// backend keeps up to three of its own, made by the pool's configuration: one to LISTEN, one to read changes, one to NOTIFY.
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
			MaxSize: o.MaxSize, MaxOps: maxOps, Timeout: o.Timeout, Outage: o.Outage, Linger: time.Minute,
		}),
		handle: h,
	}, nil
}

func newHandle(d *database) *handle {
	var r *replica
	if d.opts.Replica != nil {
		r = &replica{pool: d.opts.Replica, primary: d.main}
	}
	log, in, n, journal := &history{database: d}, new(currentInbox), newNotifier(d), &notes{d}
	h := &handle{
		reader: newReader(d, r, log, in), writer: newWriter(d, r, in, n), notes: journal, fence: &fence{journal},
		database: d, source: &source{database: d, history: log, inbox: in, notifier: n, replica: r}, notifier: n,
	}
	h.running.Go(n.notify)
	h.running.Go((&retention{d, log}).run)
	return h
}

// StoreID implements driver.Driver.
func (h *handle) StoreID() driver.StoreID { return *h.database.id.Load() }

// Source implements driver.Driver.
func (h *handle) Source() driver.Source[position] { return h.source }

// closeGrace is what calls that are under way get to hear from the database before Close gives up on it.
const closeGrace = 2 * time.Second

// Close implements driver.Driver.
func (h *handle) Close() error {
	h.database.end()
	defer h.database.abort()
	defer time.AfterFunc(closeGrace, h.database.abort).Stop()
	h.writer.batch.Close()
	h.reader.batch.Close()
	h.lookout.batch.Close()
	h.looker.batch.Close()
	h.running.Wait()
	h.notifier.finish(closeGrace)
	h.database.close()
	return nil
}
