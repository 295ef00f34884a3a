package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

const (
	// fenced is the SQLSTATE of a write that the fence refuses.
	fenced = "AS001"
	// superseded is the SQLSTATE of a write whose guard does not hold.
	superseded = "AS004"
	// fenceNote is the name of the note that says where the data went. No other note has a name like it.
	fenceNote = "~fence"
)

// refusal gives an error of the database the contract's meaning, where it is the fence's or a guard's.
func refusal(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case fenced:
		return driver.Refused(pg.Detail)
	case superseded:
		return driver.ErrSuperseded
	}
	return err
}

// SetFence implements driver.Mover: it changes the fence at the epoch that it has. If it has another one by then, the change may have
// been made by an attempt whose answer was lost.
func (b *handle) SetFence(ctx context.Context, target *string) error {
	state, err := b.Fence(ctx)
	if err == nil {
		_, err = b.SetFenceAt(ctx, target, state.Epoch)
	}
	if !errors.Is(err, storage.ErrCASFailure) {
		return err
	}
	state, lookErr := b.Fence(ctx)
	if lookErr != nil || state.Closed == (target != nil) && (target == nil || state.Target == *target) {
		return lookErr
	}
	return err
}

// Guards implements driver.GuardedMover. The statement of a guarded change locks the note until its commit.
func (*handle) Guards() {}

// SetFenceAt implements driver.GuardedMover.
func (b *handle) SetFenceAt(ctx context.Context, target *string, epoch string) (string, error) {
	if target == nil {
		return b.unfence(ctx, epoch)
	}
	return b.fence(ctx, *target, epoch)
}

// fence closes the store by a trigger on the table. To create it, or to create it anew, takes a lock that waits for the writers under
// way, and whoever comes later meets the trigger. Readers, and a backup that takes hours, do not come into it: to drop it would wait
// for them.
func (b *handle) fence(ctx context.Context, target, epoch string) (next string, err error) {
	err = b.handover(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if next, err = b.nextEpoch(ctx, tx, epoch); err != nil {
			return err
		}
		// The target is in the journal and not in the function's text, where it would have to be escaped twice.
		_, err := tx.Exec(ctx, b.named(`
insert into $journal (name, value) values ($1, $2)
on conflict (name) do update set value = excluded.value, revision = gen_random_uuid()`), fenceNote, []byte(target))
		if err != nil {
			return err
		}
		return b.execAll(ctx, tx,
			`create or replace function $fence() returns trigger language plpgsql as $body$
declare target text;
begin
    select convert_from(value, 'UTF8') into target from $journal where name = '`+fenceNote+`';
    raise exception using errcode = '`+fenced+`', message = 'the store is closed for writing', detail = coalesce(target, '');
end $body$`,
			`create or replace trigger fence before insert or update or delete or truncate on $resources for each statement execute function $fence()`)
	})
	return next, err
}

// unfence opens the store again: the trigger lets everybody pass, and goes if it can.
func (b *handle) unfence(ctx context.Context, epoch string) (next string, err error) {
	err = b.handover(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if next, err = b.nextEpoch(ctx, tx, epoch); err != nil {
			return err
		}
		return b.execAll(ctx, tx,
			`create or replace function $fence() returns trigger language plpgsql as $body$ begin return null; end $body$`,
			`delete from $journal where name = '`+fenceNote+`'`)
	})
	if err == nil {
		b.dropFence(ctx, next)
	}
	return next, err
}

// dropFence removes the trigger of a store that is open, unless the fence has changed since. The lock that it takes waits for every
// reader, and each later one for it: it gives up at once. A trigger that stays costs writers a call of its function.
func (b *handle) dropFence(ctx context.Context, epoch string) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	defer context.AfterFunc(b.aborted, cancel)()
	conn, err := primary(ctx, b.pool)
	if err != nil {
		return
	}
	defer conn.Release()
	_ = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { // it is tried again when the store is opened the next time
		var there int
		err := tx.QueryRow(ctx, b.named(`select 1 from $journal where name = $1 and revision::text = $2 for update`), driver.FenceNote, epoch).Scan(&there)
		if err != nil {
			return err
		}
		return b.execAll(ctx, tx, `set local lock_timeout = '100ms'`, `drop trigger if exists fence on $resources`, `drop function if exists $fence()`)
	})
}

// nextEpoch gives the fence another epoch if it has a certain one. Whoever else does so waits for the end of the transaction.
func (b *handle) nextEpoch(ctx context.Context, tx pgx.Tx, epoch string) (next string, err error) {
	sql, args := `insert into $journal (name, value) values ($1, '') on conflict (name) do nothing returning revision::text`, []any{driver.FenceNote}
	if epoch != "" {
		sql = `update $journal set revision = gen_random_uuid() where name = $1 and revision::text = $2 returning revision::text`
		args = append(args, epoch)
	}
	err = tx.QueryRow(ctx, b.named(sql), args...).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", failed{driver.Conflict(driver.FenceNote)}
	}
	return next, err
}

func (b *handle) execAll(ctx context.Context, tx pgx.Tx, statements ...string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, b.named(sql)); err != nil {
			return err
		}
	}
	return nil
}

// Fence implements driver.Mover.
func (b *handle) Fence(ctx context.Context) (state driver.FenceState, err error) {
	err = b.handover(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var target []byte
		err := tx.QueryRow(ctx, b.named(`
select (select value from $journal where name = $1), coalesce((select revision::text from $journal where name = $2), '')`),
			fenceNote, driver.FenceNote).Scan(&target, &state.Epoch)
		state.Target, state.Closed = string(target), target != nil
		return err
	})
	return state, err
}

// guardColumns are a guard as arguments of the function apply. A revision that is none matches nothing.
func guardColumns(g *driver.Guard) (note pgtype.Text, revision pgtype.UUID) {
	if g == nil {
		return note, revision
	}
	_ = revision.Scan(g.Revision)
	return pgtype.Text{String: g.Note, Valid: true}, revision
}
