package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage/driver"
)

// notes keeps the notes of a migration.
type notes struct{ *database }

// ReadNote implements driver.Mover.
func (n *notes) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	err = n.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		value, revision = nil, ""
		err := tx.QueryRow(ctx, n.sql.named(`select value, revision::text from $journal where name = $1`), name).Scan(&value, &revision)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return value, revision, err
}

// WriteNote implements driver.Mover.
func (n *notes) WriteNote(ctx context.Context, name string, value []byte, revision string) (next string, err error) {
	err = n.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		next, err = n.write(ctx, tx, name, value, revision)
		return err
	})
	return next, err
}

// write writes a note if it has a certain revision, "" where there is none, and returns the next one.
func (n *notes) write(ctx context.Context, tx pgx.Tx, name string, value []byte, revision string) (next string, err error) {
	sql := `insert into $journal (name, value) values ($1, $2) on conflict (name) do nothing returning revision::text`
	if value == nil {
		value = []byte{}
	}
	args := []any{name, value}
	if revision != "" {
		sql = `update $journal set value = $2, revision = gen_random_uuid() where name = $1 and revision::text = $3 returning revision::text`
		args = append(args, revision)
	}
	err = tx.QueryRow(ctx, n.sql.named(sql), args...).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", permanent{driver.Conflict(name)}
	}
	return next, err
}

// DeleteNote implements driver.Mover.
func (n *notes) DeleteNote(ctx context.Context, name, revision string) error {
	return n.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, n.sql.named(`delete from $journal where name = $1 and revision::text = $2`), name, revision)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		var there bool
		err = tx.QueryRow(ctx, n.sql.named(`select exists (select from $journal where name = $1)`), name).Scan(&there)
		if err == nil && there {
			return permanent{driver.Conflict(name)}
		}
		return err
	})
}

// transact runs a transaction that may be repeated, or whose outcome the caller looks into. An answer that was lost is repeated
// too: what had already happened then shows as a conflict, and the caller reads; by then it is durable.
func (n *notes) transact(ctx context.Context, do func(ctx context.Context, tx pgx.Tx) error) error {
	doubt := false // an attempt may have happened, and not be durable
	return n.retry(ctx, func(ctx context.Context) error {
		return n.use(ctx, func(conn *pgxpool.Conn) error {
			on := n.sessions.of(conn.Conn())
			on.warned = false
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return do(ctx, tx) })
			if doubt && fateOf(err) == refused {
				// What shows as a conflict is durable with this.
				if _, proofErr := conn.Exec(ctx, `select pg_logical_emit_message(true, 'ashlar', '')`); proofErr != nil {
					return proofErr
				}
			}
			if fate := fateOf(err); on.warned && (fate == committed || fate == refused) {
				err = fmt.Errorf("the commit was cut off: %w", errUnsure)
			}
			doubt = doubt || fateOf(err) == unknown
			return err
		})
	})
}
