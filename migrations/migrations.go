// Package migrations holds the SQL schema of a store in Postgres as numbered steps, and applies them. (Package migrate, in contrast,
// moves the data of a store from one backend to another.)
//
// A store is one schema in a database. Its table schema_version has a row for each applied step: the version that the step leads to, the
// checksum of the step's text, and the oldest version whose programs still work with the store. A program refuses a store whose steps differ
// from its own, and a newer store that its version is too old for.
//
// A step is of one of two kinds. An expanding step admits the programs of the version before, so that they run beside newer programs
// during an upgrade. A contracting step does not: it is applied when the last older program has ended.
package migrations

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ashlar-dev/storage"
)

// Latest is the schema version that this program creates.
var Latest = developmentVersions + len(steps)

// Oldest is the oldest schema version that this program works with. An older store has to be upgraded first.
const Oldest = developmentVersions + 1

var (
	// ErrNone reports that the schema contains no store.
	ErrNone = errors.New("the schema holds no store")
	// ErrIncompatible reports that this program can neither open nor upgrade the store.
	ErrIncompatible = errors.New("this program cannot use the store")
)

// Querier is a connection, a transaction or a pool.
type Querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Version returns the version of the store in a schema, or [ErrNone].
func Version(ctx context.Context, conn Querier, schema string) (int, error) {
	r, err := readRecord(ctx, conn, schema)
	return r.version, err
}

// record is what the table schema_version contains.
type record struct {
	version   int
	checksums []string // of the steps, in their order; empty in a development version
	oldest    int      // the oldest version whose programs work with the store
}

func readRecord(ctx context.Context, conn Querier, schema string) (record, error) {
	var version, oldest *int
	var r record
	// The columns checksum and oldest were added later: a development version lacks both, version 9 lacks oldest.
	err := conn.QueryRow(ctx, `
select max(version), array_agg(coalesce(to_jsonb(step) ->> 'checksum', '') order by version),
       (array_agg((to_jsonb(step) ->> 'oldest')::int order by version desc))[1]
from `+table(schema)+` as step`).Scan(&version, &r.checksums, &oldest)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == undefinedTable || pg.Code == invalidSchemaName) || err == nil && version == nil {
		return record{}, ErrNone
	}
	if err != nil {
		return record{}, err
	}
	r.version, r.oldest = *version, *version
	if oldest != nil {
		r.oldest = *oldest
	}
	return r, nil
}

const (
	undefinedTable    = "42P01"
	invalidSchemaName = "3F000"
)

// Check returns the version of the store in a schema, or [ErrNone]. It returns storage.ErrNewerSchema or [ErrIncompatible], with the
// version, if this program can neither open nor upgrade the store. A version above [Latest] without an error is of a newer store that
// admits this program. A version below [Oldest] has to be upgraded.
func Check(ctx context.Context, conn Querier, schema string) (version int, err error) {
	return check(ctx, conn, schema, steps)
}

func check(ctx context.Context, conn Querier, schema string, steps []step) (version int, err error) {
	r, err := readRecord(ctx, conn, schema)
	switch latest := developmentVersions + len(steps); {
	case err != nil:
		return 0, err
	case r.oldest > latest:
		return r.version, fmt.Errorf("%w: the store has schema version %d, which programs of version %d and later can use; this program has version %d",
			storage.ErrNewerSchema, r.version, r.oldest, latest)
	case r.version <= developmentVersions:
		return r.version, fmt.Errorf("%w: the store has the development schema version %d; export it with the previous program (ashlar export), "+
			"and import it into a new store (ashlar import)", ErrIncompatible, r.version)
	case len(r.checksums) != r.version-developmentVersions:
		return r.version, fmt.Errorf("%w: the table schema_version has %d rows at version %d, expected %d; restore it from a backup",
			ErrIncompatible, len(r.checksums), r.version, r.version-developmentVersions)
	}
	for i, step := range steps[:min(len(steps), len(r.checksums))] {
		if r.checksums[i] != step.checksum {
			return r.version, fmt.Errorf("%w: the text of step %s has changed: the store has the checksum %.12s, this program %.12s; "+
				"use the program version that created the store", ErrIncompatible, step.Name, r.checksums[i], step.checksum)
		}
	}
	return r.version, nil
}

// Up upgrades the store in a schema to [Latest], or creates the store and, if necessary, its schema. It returns the previous version,
// 0 for a new store, and the errors of [Check]. It does not change a newer store. Up is one transaction, which holds a lock for the schema, so any number of processes
// may call it at once, also through PgBouncer.
//
// The deadline of ctx bounds the waits for locks, and the creation of a store. An upgrade that has started continues after the
// deadline: otherwise a long one would start again each time, with the store locked, and never end.
//
// If the server stops waiting for its synchronous standby, the upgrade may not be durable: Up returns no error, but the connection
// receives a warning.
func Up(ctx context.Context, conn *pgx.Conn, schema string) (from int, err error) {
	return up(ctx, conn, schema, steps)
}

func up(ctx context.Context, conn *pgx.Conn, schema string, steps []step) (from int, err error) {
	// After the wait for the lock, this transaction must see the previous holder's changes, whatever isolation the session has.
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
	var hasSchema, hasStore bool
	err = tx.QueryRow(ctx, "select exists (select from pg_namespace where nspname = $1), to_regclass($2) is not null", schema, table(schema)).
		Scan(&hasSchema, &hasStore)
	switch {
	case err != nil:
		return 0, err
	case hasStore:
		from, err = check(ctx, tx, schema, steps)
		if err != nil || from >= developmentVersions+len(steps) {
			return from, err
		}
		var stop context.CancelFunc
		ctx, stop = withoutDeadline(ctx)
		defer stop()
	case !hasSchema: // a user without the right to create schemas may use an existing one
		if _, err := tx.Exec(ctx, "create schema "+pgx.Identifier{schema}.Sanitize()); err != nil {
			return 0, err
		}
	}
	planned, err := plan(from, schema, steps)
	if err != nil {
		return from, err
	}
	for _, s := range planned {
		if err := s.apply(ctx, tx, schema, steps[s.Version-developmentVersions-1].checksum); err != nil {
			return from, fmt.Errorf("upgrade the schema from version %d by %s: %w", from, s.Name, err)
		}
	}
	return from, tx.Commit(ctx)
}

// bound makes the server end a wait for a lock at the caller's deadline: the server does not notice by itself that the caller has
// returned, and all others would wait behind it. It removes the session's timeouts for statements and transactions, and lets the server
// send warnings.
func bound(ctx context.Context, tx pgx.Tx) error {
	if deadline, ok := ctx.Deadline(); ok {
		remaining := max(time.Until(deadline).Milliseconds(), 1)
		if _, err := tx.Exec(ctx, "select set_config('lock_timeout', $1, true)", fmt.Sprint(min(remaining, math.MaxInt32))); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "select set_config(name, '0', true), set_config('client_min_messages', 'warning', true) from pg_settings "+
		"where name in ('statement_timeout', 'transaction_timeout')")
	return err
}

// withoutDeadline returns a context that ends when ctx is cancelled, but not at its deadline.
func withoutDeadline(ctx context.Context) (context.Context, context.CancelFunc) {
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	return work, func() { stop(); cancel() }
}
