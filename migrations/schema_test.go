//go:build integration

package migrations

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

var update = flag.Bool("update", false, "write testdata/schema.txt")

// schemaQuery returns a line for each column, index, constraint, function, trigger and setting of a schema.
const schemaQuery = `
select replace(line, quote_ident($1) || '.', '') from (
    select 1 as part, format('%s %s: %s%s%s, storage %s', c.table_name, c.column_name, c.data_type, case c.is_nullable when 'NO' then ' not null' else '' end,
        coalesce(' default ' || c.column_default, ''), a.attstorage) as line, c.table_name as name, c.ordinal_position::int as number
    from information_schema.columns c
    join pg_attribute a on a.attrelid = format('%I.%I', c.table_schema, c.table_name)::regclass and a.attname = c.column_name
    where c.table_schema = $1
    union all
    select 2, indexdef, indexname, 0 from pg_indexes where schemaname = $1
    union all
    select 3, format('%s: %s', conrelid::regclass, pg_get_constraintdef(oid)), conname, 0
    from pg_constraint where connamespace = quote_ident($1)::regnamespace and contype <> 'n'
    union all
    select 4, format('function %s(%s), volatility %s', proname, pg_get_function_arguments(oid), provolatile), proname, 0
    from pg_proc where pronamespace = quote_ident($1)::regnamespace
    union all
    select 5, pg_get_triggerdef(t.oid), tgname, 0 from pg_trigger t join pg_class c on c.oid = tgrelid
    where c.relnamespace = quote_ident($1)::regnamespace and not tgisinternal
    union all
    select 6, format('%s: %s', relname, reloptions), relname, 0 from pg_class
    where relnamespace = quote_ident($1)::regnamespace and reloptions is not null
) parts order by part, name, number, line`

// TestSchema compares the schema that all steps lead to with testdata/schema.txt. The flag -update writes the file.
func TestSchema(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	conn := server.Connect(t)
	if _, err := Up(ctx, conn, schema); err != nil {
		t.Fatal(err)
	}
	rows, _ := conn.Query(ctx, schemaQuery, schema)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(lines, "\n") + "\n"
	if *update {
		if err := os.WriteFile("testdata/schema.txt", []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/schema.txt")
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the schema is:\n%s\nexpected:\n%s", got, want)
	}
}
