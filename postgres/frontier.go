package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// How far the history is final.
//
// Whoever changes something first notes the last number drawn, in a shared advisory lock, and then draws numbers, all above it; the
// lock is released once the commit is visible. A reader reads the last number drawn, M; then the notes; then, in a later statement,
// the changes. Everything up to the lower of M and the lowest note is final: visible now, or never. For
//
//   - who held a note when the notes were read draws numbers above it;
//   - who held none yet draws its numbers after M was read, so above M;
//   - who had released it is visible to the later statement.
//
// Numbers are drawn after the resources are locked. So for each key, and for transactions that have a key in common, the order of
// numbers is the order of commits, and a write that began after another was acknowledged has the higher number.

// scanFinal reads the number up to which the history is final from the answer to the statement final. The changes have to be
// read in a later statement. A standby does not have the notes.
func scanFinal(row pgx.Row, more ...any) (last, final int64, err error) {
	var noted pgtype.Int8
	var standby bool
	if err := row.Scan(append([]any{&last, &noted, &standby}, more...)...); err != nil {
		return 0, 0, err
	}
	if standby {
		return 0, 0, errStandby
	}
	if noted.Valid {
		return last, min(last, noted.Int64), nil
	}
	return last, last, nil
}

// finalOn asks how far the history is final, and which run of which server says so.
func (h *history) finalOn(ctx context.Context, conn *pgx.Conn) (final int64, server string, err error) {
	var asked pgx.Batch
	asked.Queue(readCommitted)
	asked.Queue(h.sql.final).QueryRow(func(row pgx.Row) (err error) {
		_, final, err = scanFinal(row)
		return err
	})
	asked.Queue(whichRun).QueryRow(func(row pgx.Row) error { return row.Scan(&server) })
	asked.Queue(`commit`)
	err = conn.SendBatch(ctx, &asked).Close()
	return final, server, err
}

// lastOn is last in a transaction that is on the server which has said that the number is final. On one that a fail-over has put in its
// place, or after a crash, lower numbers may be under way again; and a pooler brings the next transaction there without a word.
func (h *history) lastOn(ctx context.Context, tx pgx.Tx, final int64, server string) (at position, err error) {
	var here string
	var asked pgx.Batch
	h.queueLast(&asked, final, &here, &at)
	err = tx.SendBatch(ctx, &asked).Close()
	if err == nil && here != server {
		err = notSent{errMoved} // it is tried again
	}
	return at, err
}

// queueLast has asked which server this is, and for the position of the last change up to a number.
func (h *history) queueLast(asked *pgx.Batch, final int64, here *string, at *position) {
	asked.Queue(whichRun).QueryRow(func(row pgx.Row) error { return row.Scan(here) })
	asked.Queue(h.sql.last, final).QueryRow(func(row pgx.Row) (err error) {
		*at, err = h.scanLast(row)
		return err
	})
}

// whichRun tells apart the runs of servers, and the databases that bear a name one after another. A server that has crashed and
// recovered by itself has the same start, but has lost its statistics.
const whichRun = `
select concat_ws(' ', extract(epoch from pg_postmaster_start_time()), extract(epoch from pg_stat_get_bgwriter_stat_reset_time()), oid)
from pg_database where datname = current_database()`

var errMoved = errors.New("the server was replaced by another one between two statements")

// newest returns the position of the last change that is final. The transaction keeps both questions on one server.
func (h *history) newest(ctx context.Context, db interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}) (at position, err error) {
	err = pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		_, final, err := scanFinal(tx.QueryRow(ctx, h.sql.final))
		if err == nil {
			at, err = h.last(ctx, tx, final)
		}
		return err
	})
	return at, err
}

// last returns the position of the last change up to a number, which has to be final.
func (h *history) last(ctx context.Context, q querier, final int64) (position, error) {
	return h.scanLast(q.QueryRow(ctx, h.sql.last, final))
}

var (
	errPruned = fmt.Errorf("%w: changes after the cursor have been deleted (see the parameter retention)", storage.ErrCompacted)
	errOther  = fmt.Errorf("%w: the store was replaced", storage.ErrCompacted)
	errForked = fmt.Errorf("%w: the change at the cursor is not in the database, which must have been restored from a backup, or have lost commits in a fail-over",
		storage.ErrCompacted)
)

// check reports whether the store, which has this id and oldest, still has every change after a position. piece is of the change
// there, nil if there is none.
func (h *history) check(id driver.StoreID, oldest int64, at *position, piece []byte) error {
	switch {
	case id != *h.id.Load():
		h.id.Store(&id)
		return errOther
	case at.revision < oldest:
		return errPruned
	case at.revision > 0 && string(piece) != string(at.piece[:]):
		return errForked
	}
	return nil
}
