// Package migrations holds the SQL schema of a store in Postgres, as numbered steps, and applies them. (Package migrate, by
// contrast, moves a store's data from one backend to another.)
//
// A store is one schema in a database. Its version is a number in its table schema_version: how many of the steps have been
// applied. A program refuses a store that is newer than the steps it knows.
package migrations

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/tern/v2/migrate"

	"github.com/ashlar-dev/storage"
)

//go:embed *.sql
var steps embed.FS

// Latest is the schema version of this program: the number of steps.
var Latest = func() int {
	names, err := fs.Glob(steps, "*.sql")
	if err != nil {
		panic(err)
	}
	return len(names)
}()

// ErrNone says that the schema holds no store.
var ErrNone = errors.New("the schema holds no store")

// Version returns the version of the store in a schema, or [ErrNone].
func Version(ctx context.Context, conn Querier, schema string) (int, error) {
	var version int
	err := conn.QueryRow(ctx, "select version from "+table(schema)).Scan(&version)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == undefinedTable || pg.Code == invalidSchemaName) {
		return 0, ErrNone
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, ErrNone
	}
	return version, err
}

// Querier is what Version needs: a connection, a transaction or a pool.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

const (
	undefinedTable    = "42P01"
	invalidSchemaName = "3F000"
)

// Newer is the error for a store of a version that this program does not know. It matches storage.ErrNewerSchema.
func Newer(version int) error {
	return fmt.Errorf("%w: it has schema version %d, this program knows up to %d", storage.ErrNewerSchema, version, Latest)
}

// Up brings the store in a schema, which is created if need be, to a version, usually [Latest], and returns the version it
// found. Everything happens in one transaction, and only one caller at a time gets to work on a schema, so any number of
// processes may call it at once, also through PgBouncer. A store that is at that version or beyond is left as it is; one
// that is newer than Latest is storage.ErrNewerSchema.
//
// The deadline of ctx bounds how long Up waits for others, and the making of a new store. An upgrade that has begun goes on beyond
// it: one that takes longer would else begin anew each time, with the store locked meanwhile, and never end.
func Up(ctx context.Context, conn *pgx.Conn, schema string, to int) (from int, err error) {
	// What another caller did while this one waited for the lock has to be seen, whatever the isolation is that a session
	// otherwise begins with.
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }() // after Commit it does nothing
	if err := bound(ctx, tx); err != nil {
		return 0, err
	}
	if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(hashtextextended($1, 0))", "ashlar schema "+schema); err != nil {
		return 0, err
	}
	var exists bool
	if err := tx.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1)", schema).Scan(&exists); err != nil {
		return 0, err
	}
	if !exists { // asking first spares a user without the right to create schemas
		if _, err := tx.Exec(ctx, "create schema "+pgx.Identifier{schema}.Sanitize()); err != nil {
			return 0, err
		}
	}
	// A failure in here must give back tern's lock, which belongs to the session and outlives the transaction; behind a
	// pooler the session is not ours to end.
	inner, err := tx.Begin(ctx)
	if err != nil {
		return 0, err
	}
	from, err = apply(ctx, conn, schema, to)
	if err != nil {
		if inner.Rollback(ctx) == nil {
			_, _ = tx.Exec(ctx, "select pg_advisory_unlock_all()")
		}
		return from, err
	}
	if from > 0 {
		var stop context.CancelFunc
		ctx, stop = withoutDeadline(ctx)
		defer stop()
	}
	if err := inner.Commit(ctx); err != nil {
		return from, err
	}
	return from, tx.Commit(ctx)
}

func apply(ctx context.Context, conn *pgx.Conn, schema string, to int) (from int, err error) {
	var made bool
	err = conn.QueryRow(ctx, "select to_regclass($1) is not null", table(schema)).Scan(&made)
	if err != nil {
		return 0, err
	}
	if made {
		if from, err = Version(ctx, conn, schema); err != nil {
			return 0, err
		}
		if from > Latest {
			return from, Newer(from)
		}
		if from >= to {
			return from, nil
		}
		var stop context.CancelFunc
		ctx, stop = withoutDeadline(ctx)
		defer stop()
	}
	migrator, err := migrate.NewMigratorEx(ctx, conn, table(schema), &migrate.MigratorOptions{DisableTx: true})
	if err != nil {
		return from, err
	}
	migrator.Data["schema"] = pgx.Identifier{schema}.Sanitize()
	// Names inside string literals.
	migrator.Data["name"] = literal(pgx.Identifier{schema, "changes"})
	migrator.Data["sequence"] = literal(pgx.Identifier{schema, "changes_seq"})
	if err := migrator.LoadMigrations(steps); err != nil {
		return from, err
	}
	if err := migrator.MigrateTo(ctx, int32(to)); err != nil {
		return from, fmt.Errorf("bring the schema from version %d to %d: %w", from, to, err)
	}
	return from, nil
}

// bound has the server end what waits for a lock when the caller has given up: it does not notice that by itself, and everybody else
// would wait behind it. What works is not bounded there, whatever the session otherwise demands.
func bound(ctx context.Context, tx pgx.Tx) error {
	if deadline, has := ctx.Deadline(); has {
		left := max(time.Until(deadline).Milliseconds(), 1)
		if _, err := tx.Exec(ctx, "select set_config('lock_timeout', $1, true)", fmt.Sprint(min(left, math.MaxInt32))); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "select set_config(name, '0', true) from pg_settings where name in ('statement_timeout', 'transaction_timeout')")
	return err
}

// withoutDeadline returns a context that ends when ctx is cancelled, but not when its time is over.
func withoutDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	return work, func() { stop(); cancel() }
}

// literal is a qualified name as it stands between the quotes of a string literal.
func literal(name pgx.Identifier) string { return strings.ReplaceAll(name.Sanitize(), "'", "''") }

func table(schema string) string { return pgx.Identifier{schema, "schema_version"}.Sanitize() }
