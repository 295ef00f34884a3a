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

// notes stores the notes of a migration.
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

// write creates a note, or replaces a note of a given revision, and returns its new revision.
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
		var exists bool
		err = tx.QueryRow(ctx, n.sql.noteExists, name).Scan(&exists)
		if err == nil && exists {
			return permanent{driver.Conflict(name)}
		}
		return err
	})
}

// transact runs a transaction, with retries. It also retries after a lost answer: if the lost attempt took effect, the next one
// reports a conflict, and the caller reads the note, which is durable by then.
func (n *notes) transact(ctx context.Context, do func(ctx context.Context, tx pgx.Tx) error) error {
	uncertain := false // an attempt may have taken effect, and may not be durable
	return n.retry(ctx, func(ctx context.Context) error {
		return n.use(ctx, func(conn *pgxpool.Conn) error {
			on := n.sessions.of(conn.Conn())
			on.hasWarning = false
			err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: beginWarned}, func(tx pgx.Tx) error { return do(ctx, tx) })
			if uncertain && classify(err) == outcomeRejected {
				// This makes the cause of a conflict durable.
				if _, proofErr := conn.Exec(ctx, n.sql.proveDurable); proofErr != nil {
					return proofErr
				}
			}
			if outcome := classify(err); on.hasWarning && (outcome == outcomeCommitted || outcome == outcomeRejected) {
				err = fmt.Errorf("commit: %w", errUnsure)
			}
			uncertain = uncertain || classify(err) == outcomeUnknown
			return err
		})
	})
}

// fence closes the store by a trigger on the table of resources. The creation or replacement of the trigger takes a lock that
// waits for the current writers; later writers run the trigger. The lock does not conflict with readers, nor with a backup that
// takes hours. A drop of the trigger would wait for those.
type fence struct{ notes *notes }

// SetFence implements driver.Mover. It changes the fence at its current epoch. If the epoch has changed in between, an attempt
// with a lost answer may have made the change.
func (f *fence) SetFence(ctx context.Context, target *string) error {
	var fence *driver.Fence
	if target != nil {
		fence = &driver.Fence{Target: *target}
	}
	state, err := f.Fence(ctx)
	if err == nil {
		_, err = f.SetFenceAt(ctx, fence, state.Epoch)
	}
	if !errors.Is(err, storage.ErrCASFailure) {
		return err
	}
	state, readErr := f.Fence(ctx)
	if readErr != nil || state.Closed == (fence != nil) && (fence == nil || state.Fence == *fence) {
		return readErr
	}
	return err
}

// Guards implements driver.GuardedMover. The statement of a guarded mutation locks the note until its commit.
func (*fence) Guards() {}

// SetFenceAt implements driver.GuardedMover.
func (f *fence) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (next string, err error) {
	err = f.notes.transact(ctx, func(ctx context.Context, tx pgx.Tx) error {
		// Concurrent calls wait for the end of this transaction.
		if next, err = f.notes.write(ctx, tx, driver.FenceNote, nil, epoch); err != nil {
			return err
		}
		sql := f.notes.sql
		if fence == nil { // until it is dropped, the trigger admits all writers
			return execAll(ctx, tx, sql.openFence, sql.deleteFenceTarget)
		}
		if _, err := tx.Exec(ctx, sql.setFenceTarget, []byte(fence.Encode())); err != nil {
			return err
		}
		return execAll(ctx, tx, sql.closeFence, sql.createTrigger)
	})
	if err == nil && fence == nil {
		f.drop(ctx, next)
	}
	return next, err
}

// drop removes the trigger of an open store, unless the fence has changed since. Its lock waits for every reader, and later
// readers wait for the lock, so it has a short timeout. A remaining trigger costs each write a function call.
func (f *fence) drop(ctx context.Context, epoch string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	defer context.AfterFunc(f.notes.abortCtx, cancel)()
	sql := f.notes.sql
	_ = f.notes.use(ctx, func(conn *pgxpool.Conn) error { // retried when the fence is opened the next time
		return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			var exists int
			err := tx.QueryRow(ctx, sql.lockNote, driver.FenceNote, epoch).Scan(&exists)
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
		var value []byte
		err := tx.QueryRow(ctx, f.notes.sql.fenceState, driver.FenceNote).Scan(&value, &state.Epoch)
		state.Fence, state.Closed = driver.DecodeFence(string(value)), value != nil
		return err
	})
	return state, err
}
