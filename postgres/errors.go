package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
)

// fate is what an error says about the statement that met it.
type fate int

const (
	committed fate = iota // there was none
	refused               // the database said no, and would say so again
	undone                // nothing happened, and it may go better next time
	unknown               // the answer was lost: it may have happened
)

const (
	readOnlyTransaction = "25006"
	lockNotAvailable    = "55P03"
)

// fateOf judges an error of a statement or a transaction.
func fateOf(err error) fate {
	var f failed
	if errors.As(err, &f) {
		return refused
	}
	var unsent notSent
	if errors.As(err, &unsent) {
		if fateOf(unsent.error) == refused {
			return refused
		}
		return undone
	}
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		var connect *pgconn.ConnectError
		if errors.As(err, &connect) {
			return whileConnecting(pg)
		}
		switch pg.Code {
		case "40001", "40P01", // serialization failure, deadlock
			readOnlyTransaction,
			lockNotAvailable, "57014", // lock timeout, cancelled (a statement_timeout of the user)
			late, overlapped,
			"26000", "0A000": // a prepared statement is gone or out of date; the next attempt prepares it anew
			return undone
		}
		switch pg.Code[:min(2, len(pg.Code))] {
		case "53": // the server is out of something
			return undone
		case "08", "57", "58", "XX": // connection, operator intervention, system, internal
			return unknown
		}
		if pg.SeverityUnlocalized == "FATAL" || pg.SeverityUnlocalized == "PANIC" {
			return unknown
		}
		return refused
	}
	if errors.Is(err, pgconn.ErrConnClosed) {
		// pgx says so, and that it is safe to retry, also when the answer to a simple statement (such as a commit) is lost:
		// it looks for the answer twice, and the first look closes the connection.
		return unknown
	}
	if errors.Is(err, errLate) || errors.Is(err, errStandby) || errors.Is(err, pgx.ErrTxCommitRollback) || pgconn.SafeToRetry(err) {
		return undone
	}
	var connect *pgconn.ConnectError
	if errors.As(err, &connect) {
		return undone
	}
	return unknown
}

// whileConnecting judges a refusal to connect: a wrong password or database stays wrong, a server that starts will have
// started.
func whileConnecting(pg *pgconn.PgError) fate {
	switch pg.Code {
	case "28P01", "28000", "3D000", "42501": // password, authorization, no such database, no right to connect
		return refused
	}
	return undone
}

// errStandby says that nothing was asked of a server, because it does not know the present.
var errStandby = errors.New("the server is a standby, expected a primary")

// primary acquires a connection to a server that is no standby. A pool of Open makes no others; one that was given to New may. The
// server tells by itself, so it takes no question; a pooler may keep it back.
func primary(ctx context.Context, pool *pgxpool.Pool) (*pgxpool.Conn, error) {
	conn, err := pool.Acquire(ctx)
	if err == nil && conn.Conn().PgConn().ParameterStatus("in_hot_standby") == "on" {
		conn.Release()
		return nil, errStandby
	}
	return conn, err
}

// elsewhere has a pool connect anew where the server takes no writes: a name or a balancer may lead to another one by now.
func elsewhere(pool *pgxpool.Pool, err error) {
	if hasCode(err, readOnlyTransaction) || errors.Is(err, errStandby) {
		pool.Reset()
	}
}

// inconsistent is the error of a call that ran out of time.
func inconsistent(ctx context.Context, last error) error {
	over := ctx.Err()
	switch {
	case over == nil:
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, last)
	case last == nil || errors.Is(last, over):
		return fmt.Errorf("%w: %w", storage.ErrInconsistent, over)
	}
	return fmt.Errorf("%w: %w, after: %w", storage.ErrInconsistent, over, last)
}

// repeat calls f until it succeeds, is refused, or ctx ends. f is called again also after a lost answer, so it must be safe to
// repeat, or find out for itself what became of its last attempt.
func (b *handle) repeat(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(b.aborted, cancel)()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 500*time.Millisecond) {
		err := f(ctx)
		if err == nil {
			return nil
		}
		if b.closed.Load() {
			return storage.ErrClosed
		}
		if ctx.Err() != nil {
			return inconsistent(ctx, err)
		}
		if fateOf(err) == refused {
			return refusal(err)
		}
		elsewhere(b.pool, err)
		if err := b.pause(ctx, pause, err); err != nil {
			return err
		}
	}
}

// pause waits for some time before another attempt, unless there is none to come; last is the error of the last one.
func (b *handle) pause(ctx context.Context, d time.Duration, last error) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return inconsistent(ctx, last)
	case <-b.life.Done():
		return storage.ErrClosed
	}
}

// rollback ends a transaction that is of no use any more. On a connection that does not answer it gives up: the pool closes
// connections that come back inside a transaction.
func rollback(tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = tx.Rollback(ctx)
}
