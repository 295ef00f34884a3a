package postgres

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// database is what the parts of a handle stand on: the connections, the statements and the id of its store, and how long calls go on
// trying.
type database struct {
	opts Options
	sql  *statements
	id   atomic.Pointer[driver.StoreID] // of the store, which may be replaced by another

	main     *pgxpool.Pool
	side     *pgxpool.Pool // for what must not wait behind callers: the feed's polls, and NOTIFY
	pools    []*pgxpool.Pool
	sessions sessions
	watchdog *watchdog
	replica  *replica // nil: none

	lifetime context.Context // ends with Close
	end      context.CancelFunc
	abortCtx context.Context // ends some time later, for calls that are still under way then
	abort    context.CancelFunc
}

func newDatabase(main *pgxpool.Pool, opts Options) (*database, error) {
	d := &database{opts: opts, sql: newStatements(opts.Schema), main: main}
	d.lifetime, d.end = context.WithCancel(context.Background())
	d.abortCtx, d.abort = context.WithCancel(context.Background())
	config := main.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 2, 0, 0
	var err error
	if d.side, err = pgxpool.NewWithConfig(d.lifetime, config); err != nil {
		d.end()
		return nil, err
	}
	d.watchdog = newWatchdog(d.side, d.sql)
	if opts.Replica != nil {
		d.replica = &replica{pool: opts.Replica, primary: main, sql: d.sql}
	}
	return d, nil
}

func (d *database) close() {
	d.end()
	d.watchdog.close()
	d.side.Close()
	for _, owned := range d.pools {
		owned.Close()
	}
}

// primary acquires a connection to a server that is no standby. A pool of Open makes no others; one that was given to New may. The
// server tells by itself, so it takes no question; a pooler may keep it back.
func primary(ctx context.Context, from *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := from.Acquire(ctx)
	if err == nil && conn.Conn().PgConn().ParameterStatus("in_hot_standby") == "on" {
		conn.Release()
		return nil, errStandby
	}
	return conn, err
}

// resetStandby has a pool connect anew where the server takes no writes: a name or a balancer may lead to another one by now.
func resetStandby(pool *pgxpool.Pool, err error) {
	if hasCode(err, codeReadOnly) || errors.Is(err, errStandby) {
		pool.Reset()
	}
}

// use runs f on a connection, for as long as it takes.
func (d *database) use(ctx context.Context, f func(conn *pgxpool.Conn) error) error {
	conn, err := primary(ctx, d.main)
	if err != nil {
		return err
	}
	defer conn.Release()
	return f(conn)
}

// query runs a short query on a connection that is given up when it stays silent.
func (d *database) query(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn) error) error {
	return d.use(ctx, func(conn *pgxpool.Conn) error { return d.withWatchdog(ctx, conn, f) })
}

func (d *database) withWatchdog(ctx context.Context, conn *pgxpool.Conn, f func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, done := d.watchdog.watch(ctx, conn.Conn(), false, 0)
	defer done(false)
	return f(ctx, conn.Conn())
}

// pollTimeout is how long a poll waits for its answer before it takes the connection for dead.
const pollTimeout = 15 * time.Second

// poll runs a short query of the feed, or of its history, which nobody retries at once.
func (d *database) poll(ctx context.Context, from *pgxpool.Pool, f func(ctx context.Context, conn *pgx.Conn) error) error {
	connecting, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	conn, err := primary(connecting, from)
	if err == nil {
		defer conn.Release()
		err = d.withWatchdog(ctx, conn, f)
	}
	resetStandby(from, err)
	return err
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// retry calls f until it succeeds, is refused, or ctx ends. f is called again also after a lost answer, so it must be safe to
// repeat, or find out for itself what became of its last attempt.
func (d *database) retry(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.abortCtx, cancel)()
	var cause error // why the attempt before failed
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		err := f(ctx)
		switch {
		case err == nil:
			return nil
		case d.lifetime.Err() != nil:
			return storage.ErrClosed
		case ctx.Err() != nil && errors.Is(err, ctx.Err()) && cause != nil:
			return inconsistent(ctx, cause) // that the time ended in the middle of an attempt tells less
		case ctx.Err() != nil:
			return inconsistent(ctx, err)
		case classify(err) == outcomeRejected:
			return refusal(err)
		}
		cause = err
		resetStandby(d.main, err)
		if err := d.pause(ctx, pause, err); err != nil {
			return err
		}
	}
}

// queryPrimary retries a short query. begin is called before each attempt, and each after a row was scanned into what is given.
func (d *database) queryPrimary(ctx context.Context, begin func(), sql string, arguments, into []any, each func() error) error {
	err := d.retry(ctx, func(ctx context.Context) error {
		return d.query(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			begin()
			rows, _ := conn.Query(ctx, sql, arguments...) // an error shows in the rows
			_, err := pgx.ForEachRow(rows, into, each)
			return err
		})
	})
	d.replica.recordIssue() // before the answer is given out
	return err
}

// onPrimary retries a query that may take its time.
func (d *database) onPrimary(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	err := d.retry(ctx, func(ctx context.Context) error {
		return d.use(ctx, func(conn *pgxpool.Conn) error { return f(ctx, conn) })
	})
	d.replica.recordIssue()
	return err
}

// pause waits for some time before another attempt, unless there is none to come; last is the error of the last one.
func (d *database) pause(ctx context.Context, long time.Duration, last error) error {
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return inconsistent(ctx, last)
	case <-d.lifetime.Done():
		return storage.ErrClosed
	}
}

// Prepare makes a pool's configuration fit for a backend; the pools of Open have it. Without it the backend keeps its promises
// too, but a write that is given up is cancelled, and Postgres then shows a commit that waits for a synchronous standby although
// the standby does not have it.
//
// pgx sends a request to cancel whenever it gives up a connection. A connection that was prepared sends none.
func Prepare(config *pgxpool.Config) {
	before := config.BeforeConnect
	config.BeforeConnect = func(ctx context.Context, c *pgx.ConnConfig) error {
		if before != nil {
			if err := before(ctx, c); err != nil {
				return err
			}
		}
		prepareConn(c)
		return nil
	}
}

var errNoCancel = errors.New("requests to cancel are not sent")

// prepareConn changes the configuration of one connection, which no other one shares.
func prepareConn(c *pgx.ConnConfig) {
	var connected atomic.Bool // what is dialled from then on is a request to cancel
	dial, after, notice := c.DialFunc, c.AfterConnect, c.OnNotice
	c.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if connected.Load() {
			return nil, errNoCancel
		}
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &activityConn{Conn: conn}, nil
	}
	c.AfterConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if after != nil {
			if err := after(ctx, conn); err != nil {
				return err
			}
		}
		connected.Store(true)
		return nil
	}
	c.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if notice != nil {
			notice(conn, n)
		}
		// A commit that stops to wait for its standby succeeds with a warning, whose text depends on the server's language.
		if n.SeverityUnlocalized == "WARNING" && n.Code == codeWarning {
			if s, ok := conn.CustomData()[sessionKey].(*session); ok {
				s.hasWarning = true
			}
		}
	}
}

// session is what the backend knows about one connection. It belongs to whoever has the connection.
type session struct {
	serial      uint64        // sessions are numbered as they come to be known
	floor       int64         // a number drawn before: what this session writes has higher ones
	clockReadAt time.Time     // when the server last reported its time and floor
	skew        time.Duration // of the server's clock, before this program's
	hasWarning  bool          // the last statement raised a warning
	viaPooler   bool          // a pooler stands in between
}

const sessionKey = "ashlar"

// sessions counts the sessions of a backend. A crash of the server, or a fail-over, ends the ones before it; so one that answers
// shows that the server which an older number knew still runs. Behind a pooler sessions outlive servers, and show nothing.
type sessions struct{ last atomic.Uint64 }

func (s *sessions) of(conn *pgx.Conn) *session {
	data := conn.PgConn().CustomData()
	known, ok := data[sessionKey].(*session)
	if !ok {
		known = &session{serial: s.last.Add(1)}
		data[sessionKey] = known
	}
	return known
}

// expiry is the time, by the server's clock, after which a statement that is sent now shall not begin any more, if its way may take
// so much longer than usual.
func (s *session) expiry(longer time.Duration) time.Time {
	return time.Now().Add(s.skew + expireAfter + longer)
}

// expireAfter is how long a statement may be on its way. A pooler may keep one for as long as it likes.
const expireAfter = 2 * time.Second

// ask asks the server for its clock and its last number, and whether the process that answers is the one that the connection was made
// to: a pooler gives its clients numbers of its own.
func (s *session) ask(ctx context.Context, conn *pgx.Conn, sql *statements) error {
	var now time.Time
	var pid int32
	err := conn.QueryRow(ctx, sql.server).Scan(&s.floor, &now, &pid)
	s.skew, s.clockReadAt = time.Until(now), time.Now()
	s.viaPooler = uint32(pid) != conn.PgConn().PID()
	return err
}

// rollback ends a transaction that is of no use any more. On a connection that does not answer it gives up: the pool closes
// connections that come back inside a transaction.
func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}

// maxPause is the longest time between two looks at a key that another transaction holds.
const maxPause = 50 * time.Millisecond
