package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// database is the common part of all parts of a handle: the connections, the statements and the id of the store, and the retries.
type database struct {
	opts Options
	sql  *statements
	id   atomic.Pointer[driver.StoreID] // of the store, which may be replaced by another one

	main      *pgxpool.Pool
	catchUp   chan struct{} // has an element for each connection of main that reads history for a watch
	side      *pgxpool.Pool // for the feed's polls and NOTIFY, which must not wait behind callers
	pools     []*pgxpool.Pool
	sessions  sessions
	viaPooler atomic.Bool // connections lead to a pooler
	watchdog  *watchdog
	growth    *growth
	telemetry recorder
	replica   *replica // nil: none

	lifetime context.Context // ends with Close
	end      context.CancelFunc
	abortCtx context.Context // ends some time after lifetime, for calls that are still running
	abort    context.CancelFunc
}

func newDatabase(main *pgxpool.Pool, opts Options) (*database, error) {
	d := &database{opts: opts, sql: newStatements(opts.Schema), main: main, growth: newGrowth(), catchUp: make(chan struct{}, max(1, main.Config().MaxConns/catchUpShare))}
	d.telemetry.start(&opts, main)
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
		d.replica = &replica{pool: opts.Replica, primary: main, sql: newReplicaStatements(opts.Schema)}
	}
	pools := map[string]*pgxpool.Pool{"main": d.main, "feed": d.side}
	if opts.Replica != nil {
		pools["replica"] = opts.Replica
	}
	d.telemetry.observe(pools)
	return d, nil
}

func (d *database) close() {
	d.end()
	d.telemetry.Close()
	d.watchdog.close()
	d.side.Close()
	for _, owned := range d.pools {
		owned.Close()
	}
}

// primary acquires a connection to a server that is not a standby. A pool of Open connects to no other server; a pool that was
// passed to New may. The server reports its role by itself, so this needs no query unless it is a standby. A pooler reports the role of
// its first server for ever, so each statement also proves the role of its server. A server that is silent for silenceTimeout is given up.
func primary(ctx context.Context, from *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := from.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	session := conn.Conn().PgConn()
	if session.ParameterStatus("in_hot_standby") == "on" && session.CustomData()[promotedKey] == nil {
		standby := true
		asking, cancel := context.WithTimeout(ctx, silenceTimeout)
		err := conn.QueryRow(asking, `select pg_is_in_recovery()`, pgx.QueryExecModeExec).Scan(&standby)
		cancel()
		if err != nil || standby {
			conn.Release()
			return nil, cmp.Or(err, errStandby)
		}
		session.CustomData()[promotedKey] = true
	}
	return conn, nil
}

// growth makes sessions discard the plans of their statements when a table has grown. Postgres keeps a plan that was made while the
// table was small, and that may read the whole table, until it analyzes the table. That may take a minute.
type growth struct {
	used  chan struct{} // has a token if a connection was used since the last check
	sizes atomic.Int64  // sizeClass of the tables; 0: unknown
}

func newGrowth() *growth { return &growth{used: make(chan struct{}, 1)} }

// acquire acquires a connection to a primary. Its session has no plans from before the last change of the sizes. It also has no jit: no
// statement runs long enough to repay a compilation, but some settings of the planner make statements look that expensive. A pooler's
// sessions belong to others too, and keep their setting.
func (d *database) acquire(ctx context.Context, from *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := primary(ctx, from)
	if err != nil {
		return nil, err
	}
	select {
	case d.growth.used <- struct{}{}:
	default: // already signaled
	}
	on, sizes := d.sessions.of(conn.Conn()), d.growth.sizes.Load()
	setup := ""
	switch {
	case !on.isSetUp && !d.viaPooler.Load():
		setup = "set jit = off; discard plans"
	case on.sizes != sizes:
		setup = "discard plans"
	default:
		return conn, nil
	}
	err = d.withWatchdog(ctx, conn, func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, setup)
		return err
	})
	if err != nil {
		conn.Release()
		return nil, notSent{err}
	}
	on.sizes, on.isSetUp = sizes, true
	return conn, nil
}

// resetStandby makes a pool reconnect after an error of a standby: the host name or the load balancer may lead to another server
// by now.
func resetStandby(pool *pgxpool.Pool, err error) {
	if hasCode(err, codeReadOnly) || hasCode(err, codeNotSupported) || errors.Is(err, errStandby) {
		pool.Reset()
	}
}

// use calls f with a connection, without a time limit.
func (d *database) use(ctx context.Context, f func(conn *pgxpool.Conn) error) error {
	conn, err := d.acquire(ctx, d.main)
	if err != nil {
		return err
	}
	defer conn.Release()
	return f(conn)
}

// query calls f with a connection, for a short query, which is abandoned if the connection is silent for too long.
func (d *database) query(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn) error) error {
	return d.use(ctx, func(conn *pgxpool.Conn) error { return d.withWatchdog(ctx, conn, f) })
}

func (d *database) withWatchdog(ctx context.Context, conn *pgxpool.Conn, f func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, done := d.watchdog.watch(ctx, conn.Conn(), false, 0)
	defer done(false)
	return f(ctx, conn.Conn())
}

// catchUpShare is the part of the connections, one in so many, that may read history for watches. The others remain for callers: slow
// watches must not block writes.
const catchUpShare = 4

// beginCatchUp blocks until another connection may read history for a watch. The caller calls done after the read.
func (d *database) beginCatchUp(ctx context.Context) (done func(), err error) {
	select {
	case d.catchUp <- struct{}{}:
		return func() { <-d.catchUp }, nil
	case <-ctx.Done():
		return nil, notSent{ctx.Err()}
	case <-d.lifetime.Done():
		return nil, storage.ErrClosed
	}
}

// pollTimeout is how long a poll waits for an answer before it considers its connection broken.
const pollTimeout = 15 * time.Second

// poll calls f with a connection, for a short query of the feed or its history, and does not retry it.
func (d *database) poll(ctx context.Context, from *pgxpool.Pool, f func(ctx context.Context, conn *pgx.Conn) error) error {
	connecting, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	conn, err := d.acquire(connecting, from)
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

// retry calls f until it succeeds, is refused, or ctx ends. It also calls f again after a lost answer, so f must be safe to
// repeat, or must resolve the outcome of its last attempt.
func (d *database) retry(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.abortCtx, cancel)()
	var cause error // error of the previous attempt
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		err := f(ctx)
		switch {
		case err == nil:
			return nil
		case d.lifetime.Err() != nil:
			return storage.ErrClosed
		case ctx.Err() != nil && errors.Is(err, ctx.Err()) && cause != nil:
			return inconsistent(ctx, cause) // more informative than a context that ended during an attempt
		case ctx.Err() != nil:
			return inconsistent(ctx, err)
		case classify(err) == outcomeRejected:
			return refusal(err)
		}
		cause = err
		d.telemetry.retries.Add(ctx, 1)
		resetStandby(d.main, err)
		if err := d.pause(ctx, pause, err); err != nil {
			return err
		}
	}
}

// queryPrimary runs a short query on the primary, with retries. It calls begin before each attempt, and each after it has scanned
// a row into the variables of into.
func (d *database) queryPrimary(ctx context.Context, begin func(), sql string, arguments, into []any, each func() error) error {
	err := d.retry(ctx, func(ctx context.Context) error {
		return d.query(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			begin()
			rows, _ := conn.Query(ctx, sql, arguments...) // an error shows in the rows
			_, err := pgx.ForEachRow(rows, into, each)
			return err
		})
	})
	d.replica.recordIssue() // before the caller gets the answer
	return err
}

// onPrimary calls f with a connection to the primary, with retries, for a query without a time limit.
func (d *database) onPrimary(ctx context.Context, f func(ctx context.Context, conn *pgxpool.Conn) error) error {
	err := d.retry(ctx, func(ctx context.Context) error {
		return d.use(ctx, func(conn *pgxpool.Conn) error { return f(ctx, conn) })
	})
	d.replica.recordIssue()
	return err
}

// pause waits before the next attempt. It returns an error if the context or the handle has ended; last is the error of the last
// attempt.
func (d *database) pause(ctx context.Context, delay time.Duration, last error) error {
	timer := time.NewTimer(delay)
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

// Prepare adapts the configuration of a pool to a backend. New refuses a pool without it; the pools of Open are prepared.
//
// A commit that waits for a synchronous standby can be cancelled. Postgres then shows the commit, which the standby does not have,
// and sends a warning. A prepared connection records the warning. It also sends no cancel request when pgx abandons it, and decodes bytea
// in both text formats.
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
	after := config.AfterConnect
	config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		decodeBytea(conn)
		if after != nil {
			return after(ctx, conn)
		}
		return nil
	}
}

var errNoCancel = errors.New("cancel requests are disabled")

// closingHandler keeps the deadline of a connection that is being closed. pgx waits for the end of the server's data before it closes a connection
// whose context has ended, and may remove its own time limit of 15 seconds meanwhile.
type closingHandler struct {
	ctxwatch.Handler
	conn *pgconn.PgConn
}

func (h *closingHandler) HandleUnwatchAfterCancel() {
	if !h.conn.IsClosed() {
		h.Handler.HandleUnwatchAfterCancel()
	}
}

// prepareConn changes the configuration of a single connection.
func prepareConn(c *pgx.ConnConfig) {
	var connected atomic.Bool // from then on, only cancel requests are dialled
	dial, after, notice, build := c.DialFunc, c.AfterConnect, c.OnNotice, c.BuildContextWatcherHandler
	c.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler { return &closingHandler{build(conn), conn} }
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
		conn.CustomData()[preparedKey] = true
		return nil
	}
	c.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if notice != nil {
			notice(conn, n)
		}
		// A commit that stops waiting for its standby succeeds with a warning, whose text depends on the language of the server.
		if n.SeverityUnlocalized == "WARNING" && n.Code == codeWarning {
			if s, ok := conn.CustomData()[sessionKey].(*session); ok {
				s.hasWarning = true
			}
		}
	}
}

// session is the state of one connection. It may be used only by the holder of the connection.
type session struct {
	serial      uint64        // in the order of their first use
	floor       int64         // a number drawn earlier: all changes of this session have higher ones
	clockReadAt time.Time     // when the server last reported its clock and floor
	skew        time.Duration // of the server's clock, ahead of this program's
	hasWarning  bool          // the last statement raised a warning
	viaPooler   bool          // the connection leads to a pooler
	isSetUp     bool          // acquire has used the session before
	sizes       int64         // sizeClass of the tables when the session last discarded its plans
}

const (
	sessionKey  = "ashlar"
	preparedKey = "ashlar prepared" // the connection was configured by Prepare
	promotedKey = "ashlar promoted" // the connection leads to a primary, although a pooler reports a standby
)

// sessions numbers the sessions of a backend. A crash of the server or a fail-over ends all earlier sessions. So an answer on a
// session proves that the server that an older session used is still running. Behind a pooler, sessions outlive servers and prove
// nothing.
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

// expiry returns the latest time, by the server's clock, when a statement that is sent now may start. extra is the additional
// travel time of a slow statement.
func (s *session) expiry(extra time.Duration) time.Time {
	return time.Now().Add(s.skew + expireAfter + extra)
}

// expireAfter is the maximum travel time of a statement. A pooler may delay one for any time.
const expireAfter = 2 * time.Second

// ask reads the server's clock and its last number, and returns an error if that number is behind the log: no watch would return the
// next changes. It also finds out whether the connection leads to a pooler, which gives its
// clients process numbers of its own. mode is an optional pgx.QueryExecMode.
func (s *session) ask(ctx context.Context, conn *pgx.Conn, sql *statements, mode ...any) error {
	var now int64
	var pid int32
	var used int64
	var called bool
	err := conn.QueryRow(ctx, sql.server, mode...).Scan(&s.floor, &now, &pid, &used, &called)
	s.skew, s.clockReadAt = time.Until(time.UnixMicro(now)), time.Now()
	s.viaPooler = uint32(pid) != conn.PgConn().PID()
	if err == nil && (s.floor < used || !called) {
		err = permanent{fmt.Errorf("the sequence changes_seq is at %d (is_called %t), the log at %d; the sequence must be called, and not behind the log; "+
			"a logical replica does not have it: stop all writers, and run select setval(%s, %d)",
			s.floor, called, used, nameLiteral(sql.schema, "changes_seq"), max(s.floor, used, 1))}
		s.floor = 0
	}
	return err
}

// maxPause is the maximum time between two attempts on a key that another transaction holds.
const maxPause = 50 * time.Millisecond
