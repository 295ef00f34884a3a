package postgres

import (
	"context"
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
func scanFinal(row pgx.Row) (last, final int64, err error) {
	var noted pgtype.Int8
	var standby bool
	if err := row.Scan(&last, &noted, &standby); err != nil {
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

// store is what a statement says about the store beside its changes.
type store struct {
	id      driver.StoreID
	horizon int64
}

var (
	errPruned = fmt.Errorf("%w: changes after the cursor have been deleted (see the parameter retention)", storage.ErrCompacted)
	errOther  = fmt.Errorf("%w: the store was replaced", storage.ErrCompacted)
	errForked = fmt.Errorf("%w: the change at the cursor is not in the database, which must have been restored from a backup, or have lost commits in a fail-over",
		storage.ErrCompacted)
)

// check reports whether the store still has every change after a position. piece is of the change there, nil if there is none.
func (b *handle) check(found *store, at *position, piece []byte) error {
	switch {
	case found.id != b.StoreID():
		b.id.Store(&found.id)
		return errOther
	case at.revision < found.horizon:
		return errPruned
	case at.revision > 0 && string(piece) != string(at.piece[:]):
		return errForked
	}
	return nil
}

// lastChange returns the position of the last change up to a number, which has to be final.
func (b *handle) lastChange(ctx context.Context, q querier, final int64) (position, error) {
	var found store
	var revision pgtype.Int8
	var place pgtype.Int4
	var piece []byte
	err := q.QueryRow(ctx, b.sql.last, final).Scan((*[16]byte)(&found.id), &found.horizon, &revision, &place, &piece)
	if err != nil {
		return position{}, err
	}
	at := position{revision: revision.Int64, place: place.Int32}
	copy(at.piece[:], piece)
	return at, b.check(&found, &at, piece)
}

// querier is a pool, a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}
