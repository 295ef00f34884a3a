package postgres

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/handover"
)

var _ handover.Store = (*Backend)(nil)

// fenced is the SQLSTATE of a write that the fence refuses.
const fenced = "AS001"

// fenceNote is the name of the note that says where the data went. No other note has a name like it.
const fenceNote = "~fence"

// refusal gives an error of the database the contract's meaning, where it is the fence's.
func refusal(err error) error {
	var pg *pgconn.PgError
	if errors.As(err, &pg) && pg.Code == fenced {
		return handover.Refused(pg.Detail)
	}
	return err
}

// named puts the names of the store's tables into a text.
func (b *Backend) named(sql string) string {
	quote := func(name string) string { return pgx.Identifier{b.opts.Schema, name}.Sanitize() }
	return strings.NewReplacer("$journal", quote("journal"), "$resources", quote("resources"), "$fence", quote("fence")).Replace(sql)
}

// Fence closes the store for writing, for the tool that moves its data to another one, by a trigger on the table. To create it
// takes a lock that waits for the writers under way, and whoever comes later meets the trigger.
func (b *Backend) Fence(ctx context.Context, target string) error {
	return b.handover(ctx, func(ctx context.Context, tx pgx.Tx) error {
		// The target is in the journal and not in the function's text, where it would have to be escaped twice.
		_, err := tx.Exec(ctx, b.named(`
insert into $journal (name, value) values ($1, $2)
on conflict (name) do update set value = excluded.value, revision = gen_random_uuid()`), fenceNote, []byte(target))
		if err != nil {
			return err
		}
		for _, sql := range []string{
			`create or replace function $fence() returns trigger language plpgsql as $body$
declare target text;
begin
    select convert_from(value, 'UTF8') into target from $journal where name = '` + fenceNote + `';
    raise exception using errcode = '` + fenced + `', message = 'the store is closed for writing', detail = coalesce(target, '');
end $body$`,
			`drop trigger if exists fence on $resources`,
			`create trigger fence before insert or update or delete or truncate on $resources for each statement execute function $fence()`,
		} {
			if _, err := tx.Exec(ctx, b.named(sql)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Unfence opens the store again.
func (b *Backend) Unfence(ctx context.Context) error {
	return b.handover(ctx, func(ctx context.Context, tx pgx.Tx) error {
		for _, sql := range []string{
			`drop trigger if exists fence on $resources`, `drop function if exists $fence()`,
			`delete from $journal where name = '` + fenceNote + `'`,
		} {
			if _, err := tx.Exec(ctx, b.named(sql)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Fenced tells whether the store is closed for writing, and where its data went.
func (b *Backend) Fenced(ctx context.Context) (target string, closed bool, err error) {
	value, revision, err := b.ReadJournal(ctx, fenceNote)
	return string(value), revision != "", err
}

// ReadJournal returns a note of the tool that moves data, and its revision.
func (b *Backend) ReadJournal(ctx context.Context, name string) (value []byte, revision string, err error) {
	err = b.handover(ctx, func(ctx context.Context, tx pgx.Tx) error {
		value, revision = nil, ""
		err := tx.QueryRow(ctx, b.named(`select value, revision::text from $journal where name = $1`), name).Scan(&value, &revision)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return value, revision, err
}

// WriteJournal writes a note if it has that revision.
func (b *Backend) WriteJournal(ctx context.Context, name string, value []byte, revision string) (next string, err error) {
	if value == nil {
		value = []byte{}
	}
	err = b.handover(ctx, func(ctx context.Context, tx pgx.Tx) error {
		sql, args := `insert into $journal (name, value) values ($1, $2) on conflict (name) do nothing returning revision::text`, []any{name, value}
		if revision != "" {
			sql = `update $journal set value = $2, revision = gen_random_uuid() where name = $1 and revision::text = $3 returning revision::text`
			args = append(args, revision)
		}
		err := tx.QueryRow(ctx, b.named(sql), args...).Scan(&next)
		if errors.Is(err, pgx.ErrNoRows) {
			return failed{handover.Conflict(name)}
		}
		return err
	})
	if err != nil {
		return "", err
	}
	return next, nil
}

// DeleteJournal removes a note if it has that revision.
func (b *Backend) DeleteJournal(ctx context.Context, name, revision string) error {
	return b.handover(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, b.named(`delete from $journal where name = $1 and revision::text = $2`), name, revision)
		if err != nil || tag.RowsAffected() > 0 {
			return err
		}
		var there bool
		err = tx.QueryRow(ctx, b.named(`select exists (select from $journal where name = $1)`), name).Scan(&there)
		if err == nil && there {
			return failed{handover.Conflict(name)}
		}
		return err
	})
}

// handover runs a transaction that may be repeated, or whose outcome the caller looks into. An answer that was lost is repeated
// too: what had already happened then shows as a conflict, and the caller reads.
func (b *Backend) handover(ctx context.Context, do func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	err = b.attempts(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error { return do(ctx, tx) })
	})
	var f failed
	if errors.As(err, &f) && errors.Is(err, storage.ErrCASFailure) {
		return f.error
	}
	return err
}
