package postgres

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// Retention deletes changes that nobody may resume from any more. Every process tries, in its own time; a lock inside each
// transaction lets one at a time do it. "Old" is told by marked snapshots, not by transaction ids alone: a transaction that
// stayed open for long has an old id, and its changes are new.

const (
	// pruneRows is what one step deletes.
	pruneRows = 5000
	// retentionMarks is how many snapshots are marked within the time of retention.
	retentionMarks = 20
)

// retain runs as long as the backend.
func (b *Backend) retain() {
	interval := max(b.opts.Retention/retentionMarks, 100*time.Millisecond)
	pause := func() time.Duration { return interval/2 + rand.N(interval) } // the processes drift apart
	timer := time.NewTimer(pause())
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-b.life.Done():
			return
		}
		for b.life.Err() == nil {
			ctx, cancel := context.WithTimeout(b.life, time.Minute)
			more, err := b.pruneOnce(ctx, interval)
			cancel()
			// Errors are for the next time: a database that is away prunes nothing, and loses nothing.
			if err != nil || !more {
				break
			}
		}
		timer.Reset(pause())
	}
}

// pruneOnce marks the present if it is time, moves the horizon, and deletes one step of what is beyond it. more says that
// there may be more to delete.
//
// The horizon is committed before anything is deleted on its account, so whoever misses a change sees why.
func (b *Backend) pruneOnce(ctx context.Context, interval time.Duration) (more bool, err error) {
	var horizon *snapshot
	var locked bool
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, b.sql.retentionLock, b.opts.Schema).Scan(&locked); err != nil || !locked {
			return err
		}
		horizon, err = b.moveHorizon(ctx, tx, interval)
		return err
	})
	if err != nil || !locked || horizon == nil {
		return false, err
	}
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, b.sql.retentionLock, b.opts.Schema).Scan(&locked); err != nil || !locked {
			return err
		}
		tag, err := tx.Exec(ctx, b.sql.prune, xid8(0), xid8(horizon.xmax), xids(horizon.inFlight), pruneRows)
		more = tag.RowsAffected() >= pruneRows
		return err
	})
	return more, err
}

func (b *Backend) moveHorizon(ctx context.Context, tx pgx.Tx, interval time.Duration) (*snapshot, error) {
	var since float64
	if err := tx.QueryRow(ctx, b.sql.sinceMark).Scan(&since); err != nil {
		return nil, err
	}
	if since >= interval.Seconds() {
		if _, err := tx.Exec(ctx, b.sql.mark); err != nil {
			return nil, err
		}
	}
	rows, err := tx.Query(ctx, b.sql.dueMark, b.opts.Retention.Seconds())
	if err != nil {
		return nil, err
	}
	due, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(due) == 0 {
		return nil, err
	}
	horizon, err := parseSnapshot(due[0])
	if err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, b.sql.setHorizon, due[0]); err != nil {
		return nil, err
	}
	// The newest due mark stays until a newer one is due.
	_, err = tx.Exec(ctx, b.sql.dropMarks, due[0])
	return horizon, err
}
