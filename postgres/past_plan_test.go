//go:build integration

package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/migrations"
)

// TestPastCostsItsKeys reads many keys at an earlier position, by plans for these arguments and by generic plans. A connection
// switches to the latter after five executions, and they expect a key or two. The number of rows that a statement reads must not
// grow with the square of its keys.
func TestPastCostsItsKeys(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	schema := server.Schema(t)
	conn := server.Connect(t)
	if _, err := migrations.Up(ctx, conn, schema); err != nil {
		t.Fatal(err)
	}
	exec := func(format string, args ...any) {
		t.Helper()
		sql := fmt.Sprintf(format, args...)
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	const keys = 1000
	changes, resources := pgx.Identifier{schema, "changes"}.Sanitize(), pgx.Identifier{schema, "resources"}.Sanitize()
	for _, table := range []string{changes, resources} {
		exec("alter table %s set (autovacuum_enabled = off)", table)
	}
	exec(`insert into %s (revision, place, more, op, key, version, token, data, created, writes)
		select n, 0, false, 1, convert_to('key-' || n, 'UTF8'), '\x00', '\x00', '\x00', n, 1 from generate_series(1, %d) n`, changes, keys)
	exec(`insert into %s (key, uid, version, group_version, data)
		select convert_to('key-' || n, 'UTF8'), '\x00', '\x00', '\x00', '\x00' from generate_series(1, %d) n`, resources, keys)
	sql := newStatements(schema)
	for name, s := range map[string]struct{ sql, types, arguments string }{
		"page": {sql.historyPage, "bytea, bytea, bigint, bytea, bigint, int, text, bigint, bigint, bool, bigint",
			fmt.Sprintf(`'key', '\xff', %d, null, %d, 0, '{}', 10000, %d, false, 1000000`, keys+1, keys, keys+1)},
		"span": {sql.presentRange, "bytea, bytea, bigint, bool, bigint", fmt.Sprintf(`'key', '\xff', %d, false, 1000000`, keys+1)},
		"all":  {sql.presentRows, "bytea, bytea, bigint, bool", fmt.Sprintf(`'key', '\xff', %d, false`, keys+1)},
		"count": {sql.historyCount, "bytea, bytea, bigint, bytea, bigint, int, text, bigint",
			fmt.Sprintf(`'key', '\xff', 2147483647, null, %d, 0, '{}', 10000`, keys)},
	} {
		exec("prepare %s (%s) as %s", pgx.Identifier{name}.Sanitize(), s.types, s.sql)
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			exec("set plan_cache_mode = %s", mode)
			rows := rowsRead(ctx, t, conn, pgx.TraceQueryStartData{SQL: fmt.Sprintf("execute %s (%s)", pgx.Identifier{name}.Sanitize(), s.arguments)})
			if rows > 10*keys {
				t.Errorf("%s of %d keys with %s reads %.0f rows", name, keys, mode, rows)
			}
		}
	}
}
