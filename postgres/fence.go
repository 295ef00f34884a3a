package postgres

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/handover"
)

var (
	_ handover.EpochFencer = (*Backend)(nil)
	_ handover.Guarder     = (*Backend)(nil)
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
		return handover.Refused(pg.Detail)
	case superseded:
		return handover.ErrSuperseded
	}
	return err
}

// Fence closes the store for writing, for the tool that moves its data to another one, by a trigger on the table. To create it
// takes a lock that waits for the writers under way, and whoever comes later meets the trigger.
func (b *Backend) Fence(ctx context.Context, target string) error {
	return b.unlessDone(ctx, func(state handover.FenceState) bool { return state.Closed && state.Target == target },
		func(epoch string) error { _, err := b.FenceAt(ctx, target, epoch); return err })
}

// Unfence opens the store again.
func (b *Backend) Unfence(ctx context.Context) error {
	return b.unlessDone(ctx, func(state handover.FenceState) bool { return !state.Closed },
		func(epoch string) error { _, err := b.UnfenceAt(ctx, epoch); return err })
}

// unlessDone changes the fence at the epoch that it has. If it has another one by then, the change may have been made by an attempt
// whose answer was lost.
func (b *Backend) unlessDone(ctx context.Context, done func(handover.FenceState) bool, change func(epoch string) error) error {
	state, err := b.FenceState(ctx)
	if err == nil {
		err = change(state.Epoch)
	}
	if !errors.Is(err, storage.ErrCASFailure) {
		return err
	}
	if state, lookErr := b.FenceState(ctx); lookErr != nil || done(state) {
		return lookErr
	}
	return err
}

// FenceAt is Fence if the fence has that epoch.
func (b *Backend) FenceAt(ctx context.Context, target, epoch string) (next string, err error) {
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
			`drop trigger if exists fence on $resources`,
			`create trigger fence before insert or update or delete or truncate on $resources for each statement execute function $fence()`)
	})
	return next, err
}

// UnfenceAt is Unfence if the fence has that epoch.
func (b *Backend) UnfenceAt(ctx context.Context, epoch string) (next string, err error) {
	err = b.handover(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if next, err = b.nextEpoch(ctx, tx, epoch); err != nil {
			return err
		}
		return b.execAll(ctx, tx, `drop trigger if exists fence on $resources`, `drop function if exists $fence()`,
			`delete from $journal where name = '`+fenceNote+`'`)
	})
	return next, err
}

// nextEpoch gives the fence another epoch if it has a certain one. Whoever else does so waits for the end of the transaction.
func (b *Backend) nextEpoch(ctx context.Context, tx pgx.Tx, epoch string) (next string, err error) {
	sql, args := `insert into $journal (name, value) values ($1, '') on conflict (name) do nothing returning revision::text`, []any{handover.FenceNote}
	if epoch != "" {
		sql = `update $journal set revision = gen_random_uuid() where name = $1 and revision::text = $2 returning revision::text`
		args = append(args, epoch)
	}
	err = tx.QueryRow(ctx, b.named(sql), args...).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", failed{handover.Conflict(handover.FenceNote)}
	}
	return next, err
}

func (b *Backend) execAll(ctx context.Context, tx pgx.Tx, statements ...string) error {
	for _, sql := range statements {
		if _, err := tx.Exec(ctx, b.named(sql)); err != nil {
			return err
		}
	}
	return nil
}

// FenceState tells whether the store is closed for writing, where its data went, and the fence's epoch.
func (b *Backend) FenceState(ctx context.Context) (state handover.FenceState, err error) {
	err = b.handover(ctx, func(ctx context.Context, tx pgx.Tx) error {
		var target []byte
		err := tx.QueryRow(ctx, b.named(`
select (select value from $journal where name = $1), coalesce((select revision::text from $journal where name = $2), '')`),
			fenceNote, handover.FenceNote).Scan(&target, &state.Epoch)
		state.Target, state.Closed = string(target), target != nil
		return err
	})
	return state, err
}

// Fenced tells whether the store is closed for writing, and where its data went.
func (b *Backend) Fenced(ctx context.Context) (target string, closed bool, err error) {
	state, err := b.FenceState(ctx)
	return state.Target, state.Closed, err
}

// WithGuard returns a context for writes that change something only while a note of the journal has a certain revision. Their
// statement locks the note until its commit.
func (b *Backend) WithGuard(ctx context.Context, note, revision string) context.Context {
	return handover.Guarded(ctx, note, revision)
}

// guardColumns are a guard as arguments of the function apply. A revision that is none matches nothing.
func guardColumns(g *handover.Guard) (note pgtype.Text, revision pgtype.UUID) {
	if g == nil {
		return note, revision
	}
	_ = revision.Scan(g.Revision)
	return pgtype.Text{String: g.Note, Valid: true}, revision
}
