package postgres

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// notes keeps the notes of a migration.
type notes struct{ *database }

// ReadNote implements driver.Mover.
func (n *notes) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	err = n.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		value, revision = nil, ""
		err := tx.QueryRow(ctx, n.sql.readNote, name).Scan(&value, &revision)
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
	sql := n.sql.createNote
	if value == nil {
		value = []byte{}
	}
	args := []any{name, value}
	if revision != "" {
		sql = n.sql.updateNote
		args = append(args, revision)
	}
	err = tx.QueryRow(ctx, sql, args...).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", permanent{driver.Conflict(name)}
	}
	return next, err
}

// DeleteNote implements driver.Mover.
func (n *notes) DeleteNote(ctx context.Context, name, revision string) error {
	return n.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, n.sql.deleteNote, name, revision)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		var there bool
		err = tx.QueryRow(ctx, n.sql.noteExists, name).Scan(&there)
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
			on.hasWarning = false
			err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return do(ctx, tx) })
			if doubt && classify(err) == outcomeRejected {
				// What shows as a conflict is durable with this.
				if _, proofErr := conn.Exec(ctx, n.sql.proveDurable); proofErr != nil {
					return proofErr
				}
			}
			if fate := classify(err); on.hasWarning && (fate == outcomeCommitted || fate == outcomeRejected) {
				err = fmt.Errorf("the commit was cut off: %w", errUnsure)
			}
			doubt = doubt || classify(err) == outcomeUnknown
			return err
		})
	})
}

// fence closes the store by a trigger on the table. To create it, or to create it anew, takes a lock that waits for the writers under
// way, and whoever comes later meets the trigger. Readers, and a backup that takes hours, do not come into it: to drop it would wait
// for them.
type fence struct{ notes *notes }

// SetFence implements driver.Mover: it changes the fence at the epoch that it has. If it has another one by then, the change may have
// been made by an attempt whose answer was lost.
func (f *fence) SetFence(ctx context.Context, target *string) error {
	state, err := f.Fence(ctx)
	if err == nil {
		_, err = f.SetFenceAt(ctx, target, state.Epoch)
	}
	if !errors.Is(err, storage.ErrCASFailure) {
		return err
	}
	state, lookErr := f.Fence(ctx)
	if lookErr != nil || state.Closed == (target != nil) && (target == nil || state.Target == *target) {
		return lookErr
	}
	return err
}

// Guards implements driver.GuardedMover. The statement of a guarded change locks the note until its commit.
func (*fence) Guards() {}

// SetFenceAt implements driver.GuardedMover.
func (f *fence) SetFenceAt(ctx context.Context, target *string, epoch string) (next string, err error) {
	err = f.notes.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		// Whoever else does so waits for the end of the transaction.
		if next, err = f.notes.write(ctx, tx, driver.FenceNote, nil, epoch); err != nil {
			return err
		}
		sql := f.notes.sql
		if target == nil { // the trigger lets every writer pass until it is dropped
			return execAll(ctx, tx, sql.openFence, sql.deleteFenceTarget)
		}
		if _, err := tx.Exec(ctx, sql.setFenceTarget, []byte(*target)); err != nil {
			return err
		}
		return execAll(ctx, tx, sql.closeFence, sql.createTrigger)
	})
	if err == nil && target == nil {
		f.drop(ctx, next)
	}
	return next, err
}

// drop removes the trigger of a store that is open, unless the fence has changed since. The lock that it takes waits for every
// reader, and each later one for it: it gives up at once. A trigger that stays costs writers a call of its function.
func (f *fence) drop(ctx context.Context, epoch string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	defer context.AfterFunc(f.notes.abortCtx, cancel)()
	sql := f.notes.sql
	_ = f.notes.use(ctx, func(conn *pgxpool.Conn) error { // it is tried again when the store is opened the next time
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var there int
			err := tx.QueryRow(ctx, sql.lockNote, driver.FenceNote, epoch).Scan(&there)
			if err != nil {
				return err
			}
			return execAll(ctx, tx, `set local lock_timeout = '100ms'`, sql.dropTrigger, sql.dropFence)
		})
	})
}

func execAll(ctx context.Context, tx pgx.Tx, statements ...string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

// Fence implements driver.Mover.
func (f *fence) Fence(ctx context.Context) (state driver.FenceState, err error) {
	err = f.notes.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var target []byte
		err := tx.QueryRow(ctx, f.notes.sql.fenceState, driver.FenceNote).Scan(&target, &state.Epoch)
		state.Target, state.Closed = string(target), target != nil
		return err
	})
	return state, err
}
