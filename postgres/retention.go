package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/telemetry"
)

const (
	// pruneRows is the number of changes per step. A step deletes about as many.
	pruneRows = 5000
	// retentionMarks is the number of marks within the retention time. A mark records the newest revision and the time.
	retentionMarks = 20
)

// retention deletes changes that are too old for watches to resume. Every process tries at its own times; a lock in each
// transaction admits one at a time.
type retention struct {
	*database
	history *history
}

// run deletes old changes until the handle is closed.
func (r *retention) run() {
	interval := max(r.opts.Retention/retentionMarks, 100*time.Millisecond)
	pause := func() time.Duration { return interval/2 + rand.N(interval) } // spreads the processes
	timer := time.NewTimer(pause())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-r.lifetime.Done():
			return
		}
		for r.lifetime.Err() == nil {
			ctx, cancel := context.WithTimeout(r.lifetime, time.Minute)
			began := time.Now()
			more, err := r.pruneOnce(ctx, interval)
			if err == nil && !more {
				err = r.readHorizon(ctx)
			}
			cancel()
			r.report(time.Since(began), err)
			// After an error, the next round tries again: an unreachable database deletes nothing, and loses nothing.
			if err != nil || !more {
				break
			}
		}
		timer.Reset(pause())
	}
}

// report records a run. The error of a closed handle is no failure.
func (r *retention) report(took time.Duration, err error) {
	if r.lifetime.Err() != nil {
		return
	}
	r.telemetry.Series(telemetry.RetentionDuration, telemetry.ErrorAttribute(err)...).Add(r.lifetime, took.Seconds())
	if err != nil {
		r.telemetry.Logger().WarnContext(r.lifetime, "old changes could not be discarded", "error", err)
	}
}

// readHorizon reads the size of the history for the metrics.
func (r *retention) readHorizon(ctx context.Context) error {
	if r.telemetry.Recorder == nil {
		return nil
	}
	now := horizon{readAt: time.Now()}
	var seconds float64
	err := r.poll(ctx, r.main, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, r.sql.horizon).Scan(&now.changes, &seconds)
	})
	if err == nil {
		now.age = time.Duration(seconds * float64(time.Second))
		r.telemetry.history.Store(&now)
	}
	return err
}

// pruneOnce adds a mark if the interval has passed, moves the oldest readable position, and deletes one step of the superfluous
// changes before it. more reports that there may be more to delete.
//
// The move is committed before changes are deleted because of it, so a reader that misses a change sees the reason.
func (r *retention) pruneOnce(ctx context.Context, interval time.Duration) (more bool, err error) {
	var last position
	err = r.poll(ctx, r.main, func(ctx context.Context, conn *pgx.Conn) error {
		last, err = r.history.newest(ctx, conn)
		return err
	})
	if err != nil {
		return false, err
	}
	err = r.withLock(ctx, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, r.sql.forget); err != nil {
			return err
		}
		return r.move(ctx, tx, last.revision, interval)
	})
	if err != nil {
		return false, err
	}
	err = r.withLock(ctx, func(tx pgx.Tx) error {
		more, err = r.prune(ctx, tx)
		return err
	})
	return more, err
}

// prune deletes the changes that a range of changes made superfluous. The range starts after the previous one.
func (r *retention) prune(ctx context.Context, tx pgx.Tx) (more bool, err error) {
	var from, oldest int64
	var until pgtype.Int8
	if err := tx.QueryRow(ctx, r.sql.step, pruneRows).Scan(&from, &oldest, &until); err != nil || !until.Valid {
		return false, err
	}
	if _, err := tx.Exec(ctx, r.sql.prune, from, until.Int64, oldest); err != nil {
		return false, err
	}
	_, err = tx.Exec(ctx, r.sql.recordPruning, until.Int64)
	return until.Int64 < oldest, err
}

// withLock runs a transaction, unless another process is deleting changes.
func (r *retention) withLock(ctx context.Context, do func(tx pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, r.main, func(tx pgx.Tx) error {
		var locked bool
		if err := tx.QueryRow(ctx, r.sql.retentionLock, r.opts.Schema).Scan(&locked); err != nil || !locked {
			return err
		}
		return do(tx)
	})
}

// move adds a mark of the last change if the interval has passed, and moves the oldest readable position.
func (r *retention) move(ctx context.Context, tx pgx.Tx, last int64, interval time.Duration) error {
	if _, err := tx.Exec(ctx, r.sql.mark, last, interval.Seconds()); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, r.sql.moveOldest, r.opts.Retention.Seconds())
	return err
}
