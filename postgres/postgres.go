package postgres

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/batch"
	"github.com/ashlar-dev/storage/migrations"
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
	// Retention is how long changes are kept for watches to resume from: 1 h.
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
}

func (o *Options) withDefaults() Options {
	var d Options
	if o != nil {
		d = *o
	}
	or := func(d *time.Duration, otherwise time.Duration) {
		if *d <= 0 {
			*d = otherwise
		}
	}
	if d.Schema == "" {
		d.Schema = defaultSchema
	}
	if d.MaxSize <= 0 || d.MaxSize > driver.MaxSize {
		d.MaxSize = driver.MaxSize
	}
	or(&d.Timeout, 30*time.Second)
	or(&d.Outage, 5*time.Minute)
	or(&d.Retention, time.Hour)
	if d.NoListen {
		or(&d.Poll, 100*time.Millisecond)
	}
	or(&d.Poll, time.Second)
	return d
}

const defaultSchema = "ashlar"

// Backend is a store in a Postgres database. It implements storage.Backend, Pager, Resumer and Transactor, and its watches are
// storage.Bookmarkers.
type Backend struct {
	*driver.Backend[position]
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

// handle is an opened store as a driver.
type handle struct {
	opts  Options
	pool  *pgxpool.Pool
	side  *pgxpool.Pool // for what must not wait behind callers: the feed's polls, and NOTIFY
	owned []*pgxpool.Pool
	sql   statements
	id    atomic.Pointer[driver.StoreID]
	name  string // random, of this handle: it ignores its own notifications

	reads  *batch.Batcher[readCall, stored]
	writes *batch.Batcher[*op, struct{}]
	fresh  freshness

	sessions  sessions
	watchdog  *watchdog
	published atomic.Pointer[position] // of the last change that the feed has published
	looks     atomic.Uint64            // looks in the database that were asked for

	inbox atomic.Pointer[inbox] // of the feed; nil while it does not run
	ring  chan struct{}         // something changed here: other processes should look
	heard atomic.Int64          // notifications of others since the last own one

	listener atomic.Int32 // the server's process for the connection that listens; 0: there is none

	closed  atomic.Bool
	life    context.Context // ends with Close
	end     context.CancelFunc
	aborted context.Context // ends some time later, for calls that are still under way then
	abort   context.CancelFunc
	running sync.WaitGroup
}

var (
	_ driver.Driver[position] = (*handle)(nil)
	_ driver.Lister           = (*handle)(nil)
	_ driver.GuardedMover     = (*handle)(nil)
	_ driver.BulkReader       = (*handle)(nil)
	_ driver.Loader           = (*handle)(nil)
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
	config := pool.Config()
	b := &handle{
		opts: o,
		pool: pool,
		sql:  newStatements(o.Schema),
		ring: make(chan struct{}, 1),
	}
	nonce := make([]byte, 8)
	_, _ = rand.Read(nonce) // never fails
	b.name = hex.EncodeToString(nonce)
	if b.opts.Listen == nil {
		b.opts.Listen = config.ConnConfig.Copy()
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.aborted, b.abort = context.WithCancel(context.Background())
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.Timeout)
		defer cancel()
	}
	if err := b.open(ctx); err != nil {
		b.end()
		return nil, fmt.Errorf("schema %q: %w", o.Schema, err)
	}
	side := config.Copy()
	side.MaxConns, side.MinConns, side.MinIdleConns = 2, 0, 0
	var err error
	if b.side, err = pgxpool.NewWithConfig(b.life, side); err != nil {
		b.end()
		return nil, err
	}
	b.watchdog = newWatchdog(b.side)
	b.reads = batch.New(batch.Options[readCall]{MaxCalls: 256, Workers: 2, WorkerAt: 100, Direct: true}, b.readBatch)
	b.writes = batch.New(batch.Options[*op]{
		MaxCalls: 256, MaxBytes: 4 << 20, Workers: 2, WorkerAt: 32, Direct: true,
		Size: func(o *op) int { return len(o.data) },
		Key:  func(o *op) string { return string(o.keyBytes) },
	}, b.writeBatch)
	b.running.Go(b.notify)
	b.running.Go(b.retain)
	return &Backend{
		Backend: driver.New(b, driver.Options[position]{
			MaxSize: o.MaxSize, MaxOps: maxOps, Timeout: o.Timeout, Outage: o.Outage, Linger: time.Minute,
		}),
		handle: b,
	}, nil
}

// open makes sure that the store is there, in the version that this program knows, and learns its id.
func (b *handle) open(ctx context.Context) error {
	return b.repeat(ctx, func(ctx context.Context) error {
		conn, err := primary(ctx, b.pool)
		if err != nil {
			var refused *pgconn.PgError
			if !errors.As(err, &refused) && ctx.Err() == nil {
				return failed{fmt.Errorf("%w: %w", storage.ErrInconsistent, err)}
			}
			return err
		}
		defer conn.Release()
		version, err := migrations.Version(ctx, conn.Conn(), b.opts.Schema)
		switch {
		case err != nil && !errors.Is(err, migrations.ErrNone):
			return err
		case version > migrations.Latest:
			return failed{migrations.Newer(version)}
		case version < migrations.Latest && b.opts.NoCreate:
			if err != nil {
				return failed{fmt.Errorf("%w; create it by opening it without create=off, or by: ashlar schema up", err)}
			}
			return failed{fmt.Errorf("the store has schema version %d, this program needs %d; upgrade it by opening it without create=off, or by: ashlar schema up",
				version, migrations.Latest)}
		case version < migrations.Latest:
			if _, err := migrations.Up(ctx, conn.Conn(), b.opts.Schema, migrations.Latest); err != nil {
				if errors.Is(err, storage.ErrNewerSchema) {
					return failed{err}
				}
				return err
			}
		}
		var id driver.StoreID
		var standby bool
		err = conn.QueryRow(ctx, b.sql.id).Scan((*[16]byte)(&id), &standby)
		if standby {
			return failed{fmt.Errorf("%w: %w", storage.ErrInconsistent, errStandby)}
		}
		b.id.Store(&id)
		return err
	})
}

// StoreID implements driver.Driver.
func (b *handle) StoreID() driver.StoreID { return *b.id.Load() }

// Source implements driver.Driver.
func (b *handle) Source() driver.Source[position] { return source{b} }

// failed is an error that is not to be tried again.
type failed struct{ error }

func (f failed) Unwrap() error { return f.error }

// closeGrace is what calls that are under way get to hear from the database before Close gives up on it.
const closeGrace = 2 * time.Second

// Close implements driver.Driver.
func (b *handle) Close() error {
	b.closed.Store(true)
	b.end()
	defer b.abort()
	defer time.AfterFunc(closeGrace, b.abort).Stop()
	b.writes.Close()
	b.reads.Close()
	b.running.Wait()
	select {
	case <-b.ring:
		b.notifyIfHeard(closeGrace)
	default:
	}
	b.watchdog.close()
	b.side.Close()
	for _, pool := range b.owned {
		pool.Close()
	}
	return nil
}
