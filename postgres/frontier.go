package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

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

// finalOn asks how far the history is final, and which server says so.
func (h *history) finalOn(ctx context.Context, conn *pgx.Conn) (final int64, server time.Time, err error) {
	var asked pgx.Batch
	asked.Queue(readCommitted)
	asked.Queue(h.sql.final).QueryRow(func(row pgx.Row) (err error) {
		_, final, err = scanFinal(row)
		return err
	})
	asked.Queue(started).QueryRow(func(row pgx.Row) error { return row.Scan(&server) })
	asked.Queue(`commit`)
	err = conn.SendBatch(ctx, &asked).Close()
	return final, server, err
}

// stillOn reports whether a transaction is on that server: what is final on one that a fail-over has replaced may still be under way on the
// next one, and a pooler brings the next transaction there without a word.
func (h *history) stillOn(ctx context.Context, tx pgx.Tx, server time.Time) error {
	var here time.Time
	if err := tx.QueryRow(ctx, started).Scan(&here); err != nil {
		return err
	}
	if !here.Equal(server) {
		return notSent{errMoved} // it is tried again
	}
	return nil
}

// started tells the runs of servers apart.
const started = `select pg_postmaster_start_time()`

var errMoved = errors.New("the server was replaced by another one between two statements")

// newest returns the position of the last change that is final.
func (h *history) newest(ctx context.Context, q querier) (position, error) {
	_, final, err := scanFinal(q.QueryRow(ctx, h.sql.final))
	if err != nil {
		return position{}, err
	}
	return h.last(ctx, q, final)
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
