package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
)

// pool is the connections of a handle, and how long its calls go on trying with them.
type pool struct {
	main     *pgxpool.Pool
	side     *pgxpool.Pool // for what must not wait behind callers: the feed's polls, and NOTIFY
	owned    []*pgxpool.Pool
	sessions sessions
	watchdog *watchdog

	life    context.Context // ends with Close
	end     context.CancelFunc
	aborted context.Context // ends some time later, for calls that are still under way then
	abort   context.CancelFunc
}

func newPool(main *pgxpool.Pool) (*pool, error) {
	p := &pool{main: main}
	p.life, p.end = context.WithCancel(context.Background())
	p.aborted, p.abort = context.WithCancel(context.Background())
	config := main.Config()
	config.MaxConns, config.MinConns, config.MinIdleConns = 2, 0, 0
	var err error
	if p.side, err = pgxpool.NewWithConfig(p.life, config); err != nil {
		p.end()
		return nil, err
	}
	p.watchdog = newWatchdog(p.side)
	return p, nil
}

func (p *pool) close() {
	p.end()
	p.watchdog.close()
	p.side.Close()
	for _, owned := range p.owned {
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
	if hasCode(err, readOnlyTransaction) || errors.Is(err, errStandby) {
		pool.Reset()
	}
}

// use runs f on a connection, for as long as it takes.
func (p *pool) use(ctx context.Context, f func(conn *pgxpool.Conn) error) error {
	conn, err := primary(ctx, p.main)
	if err != nil {
		return err
	}
	defer conn.Release()
	return f(conn)
}

// query runs a short query on a connection that is given up when it stays silent.
func (p *pool) query(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn) error) error {
	return p.use(ctx, func(conn *pgxpool.Conn) error { return p.watched(ctx, conn, f) })
}

func (p *pool) watched(ctx context.Context, conn *pgxpool.Conn, f func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, done := p.watchdog.watch(ctx, conn.Conn(), false, 0)
	defer done(false)
	return f(ctx, conn.Conn())
}

// pollPatience is how long a poll waits for its answer before it takes the connection for dead.
const pollPatience = 15 * time.Second

// poll runs a short query of the feed, or of its history, which nobody retries at once.
func (p *pool) poll(ctx context.Context, from *pgxpool.Pool, f func(ctx context.Context, conn *pgx.Conn) error) error {
	connecting, cancel := context.WithTimeout(ctx, pollPatience)
	defer cancel()
	conn, err := primary(connecting, from)
	if err == nil {
		defer conn.Release()
		err = p.watched(ctx, conn, f)
	}
	resetStandby(from, err)
	return err
}

// retry calls f until it succeeds, is refused, or ctx ends. f is called again also after a lost answer, so it must be safe to
// repeat, or find out for itself what became of its last attempt.
func (p *pool) retry(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(p.aborted, cancel)()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		err := f(ctx)
		switch {
		case err == nil:
			return nil
		case p.life.Err() != nil:
			return storage.ErrClosed
		case ctx.Err() != nil:
			return inconsistent(ctx, err)
		case fateOf(err) == refused:
			return refusal(err)
		}
		resetStandby(p.main, err)
		if err := p.pause(ctx, pause, err); err != nil {
			return err
		}
	}
}

// pause waits for some time before another attempt, unless there is none to come; last is the error of the last one.
func (p *pool) pause(ctx context.Context, d time.Duration, last error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return inconsistent(ctx, last)
	case <-p.life.Done():
		return storage.ErrClosed
	}
}
