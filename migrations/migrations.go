// Package migrations holds the SQL schema of a store in Postgres as numbered steps, and applies them. (Package migrate, in contrast,
// moves the data of a store from one backend to another.)
//
// A store is one schema in a database. Its table schema_version has a row for each applied step, with the version that the step leads
// to and the checksum of the step's text. A program refuses a store that is newer than its steps, or whose steps differ from its own.
package migrations

import (
	"context"
	"crypto/sha256"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"strings"
	"text/template"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ashlar-dev/storage"
)

//go:embed *.sql
var files embed.FS

// developmentVersions is the number of schema versions before the first release. The first step leads to the next version, so that
// programs of that time refuse the store as newer.
const developmentVersions = 8

// Latest is the schema version that this program creates and needs.
var Latest = developmentVersions + len(steps)

// step is a file of this package. Its text must not change once a program with it was released: add another step instead.
type step struct {
	name, checksum string
	text           *template.Template
}

var steps = func() (all []step) {
	names, err := fs.Glob(files, "*.sql") // sorted
	for _, name := range names {
		var text []byte
		if text, err = files.ReadFile(name); err != nil {
			break
		}
		all = append(all, newStep(name, string(text)))
	}
	if err != nil {
		panic(err)
	}
	return all
}()

func newStep(name, text string) step {
	return step{name, fmt.Sprintf("%x", sha256.Sum256([]byte(text))), template.Must(template.New(name).Parse(text))}
}

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
	version, _, err := readVersion(ctx, conn, schema)
	return version, err
}

// readVersion returns the version of a store, and the checksums of its steps. A store of a development version has no column for them.
func readVersion(ctx context.Context, conn Querier, schema string) (version int, checksums []string, err error) {
	var last *int
	err = conn.QueryRow(ctx, "select max(version), array_agg(coalesce(to_jsonb(step) ->> 'checksum', '') order by version) from "+table(schema)+" as step").
		Scan(&last, &checksums)
	var pg *pgconn.PgError
	if errors.As(err, &pg) && (pg.Code == undefinedTable || pg.Code == invalidSchemaName) || err == nil && last == nil {
		return 0, nil, ErrNone
	}
	if err != nil {
		return 0, nil, err
	}
	return *last, checksums, nil
}

const (
	undefinedTable    = "42P01"
	invalidSchemaName = "3F000"
)

// Check returns the version of the store in a schema, or [ErrNone]. It returns storage.ErrNewerSchema or [ErrIncompatible], with the
// version, if this program can neither open nor upgrade the store.
func Check(ctx context.Context, conn Querier, schema string) (version int, err error) {
	return check(ctx, conn, schema, steps)
}

func check(ctx context.Context, conn Querier, schema string, steps []step) (version int, err error) {
	version, checksums, err := readVersion(ctx, conn, schema)
	switch latest := developmentVersions + len(steps); {
	case err != nil:
		return 0, err
	case version > latest:
		return version, fmt.Errorf("%w: the store has schema version %d, this program supports up to %d", storage.ErrNewerSchema, version, latest)
	case version <= developmentVersions:
		return version, fmt.Errorf("%w: the store has the development schema version %d; export it with the previous program (ashlar export), "+
			"and import it into a new store (ashlar import)", ErrIncompatible, version)
	case len(checksums) != version-developmentVersions:
		return version, fmt.Errorf("%w: the table schema_version has %d rows at version %d, expected %d; restore it from a backup",
			ErrIncompatible, len(checksums), version, version-developmentVersions)
	}
	for i, checksum := range checksums {
		if checksum != steps[i].checksum {
			return version, fmt.Errorf("%w: the text of step %s has changed: the store has the checksum %.12s, this program %.12s; "+
				"use the program version that created the store", ErrIncompatible, steps[i].name, checksum, steps[i].checksum)
		}
	}
	return version, nil
}

// Up upgrades the store in a schema to [Latest], or creates the store and, if necessary, its schema. It returns the previous version,
// 0 for a new store, and the errors of [Check]. Up is one transaction, which holds a lock for the schema, so any number of processes
// may call it at once, also through PgBouncer.
//
// The deadline of ctx bounds the waits for locks, and the creation of a store. An upgrade that has started continues after the
// deadline: otherwise a long one would start again each time, with the store locked, and never end.
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
		if err != nil || from == developmentVersions+len(steps) {
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
	for i := max(0, from-developmentVersions); i < len(steps); i++ {
		if err := steps[i].apply(ctx, tx, schema, developmentVersions+i+1); err != nil {
			return from, fmt.Errorf("upgrade the schema from version %d by %s: %w", from, steps[i].name, err)
		}
	}
	return from, tx.Commit(ctx)
}

// apply executes the text of a step, and records the version that it leads to.
func (s *step) apply(ctx context.Context, tx pgx.Tx, schema string, version int) error {
	var text strings.Builder
	err := s.text.Execute(&text, map[string]string{
		"schema": pgx.Identifier{schema}.Sanitize(), "name": literal(pgx.Identifier{schema, "changes"}), "sequence": literal(pgx.Identifier{schema, "changes_seq"}),
	})
	if err == nil {
		_, err = tx.Exec(ctx, text.String())
	}
	if err == nil {
		_, err = tx.Exec(ctx, "insert into "+table(schema)+" (version, checksum) values ($1, $2)", version, s.checksum)
	}
	return err
}

// bound makes the server end a wait for a lock at the caller's deadline: the server does not notice by itself that the caller has
// returned, and all others would wait behind it. It removes the session's timeouts for statements and transactions.
func bound(ctx context.Context, tx pgx.Tx) error {
	if deadline, ok := ctx.Deadline(); ok {
		remaining := max(time.Until(deadline).Milliseconds(), 1)
		if _, err := tx.Exec(ctx, "select set_config('lock_timeout', $1, true)", fmt.Sprint(min(remaining, math.MaxInt32))); err != nil {
			return err
		}
	}
	_, err := tx.Exec(ctx, "select set_config(name, '0', true) from pg_settings where name in ('statement_timeout', 'transaction_timeout')")
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

// literal returns a qualified name, escaped for a string literal.
func literal(name pgx.Identifier) string { return strings.ReplaceAll(name.Sanitize(), "'", "''") }

func table(schema string) string { return pgx.Identifier{schema, "schema_version"}.Sanitize() }
