//go:build integration

package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/migrations"
)

// TestPlans fills the log with two million changes and checks how Postgres would read it: before and after it has analyzed the
// table, with a plan for these arguments and with a generic one.
func TestPlans(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	schema := server.Schema(t)
	conn := server.Connect(t)
	if _, err := migrations.Up(ctx, conn, schema); err != nil {
		t.Fatal(err)
	}
	changes, resources := pgx.Identifier{schema, "changes"}.Sanitize(), pgx.Identifier{schema, "resources"}.Sanitize()
	exec := func(sql string) {
		t.Helper()
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	for _, table := range []string{changes, resources} {
		exec("alter table " + table + " set (autovacuum_enabled = off)")
	}
	exec("insert into " + changes + ` (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
		select n, 0, false, 1, convert_to('key-' || n % 1000, 'UTF8'), '\x00', '\x00', '\x00',
			n % 1000, n / 1000 + 1, case when n > 1000 then n - 1000 end, 0 from generate_series(1, 2000000) n`)
	exec("insert into " + resources + ` (key, uid, version, group_version, data)
		select convert_to('key-' || n, 'UTF8'), '\x00', '\x00', '\x00', '\x00' from generate_series(1, 100000) n`)
	sql := newStatements(schema)
	array := func(element string) (literal string) {
		t.Helper()
		if err := conn.QueryRow(ctx, "select quote_literal(array(select "+element+" from generate_series(1, 64) n)::text)").Scan(&literal); err != nil {
			t.Fatal(err)
		}
		return literal
	}
	keys := array("convert_to('key-' || n * 7, 'UTF8')")
	same := array
	statements := map[string]struct{ sql, types, arguments string }{
		"changes":  {sql.changes, "bigint, int, bigint, bigint", "1999990, 0, 500, 1000000"},
		"last":     {sql.last, "bigint", "1999990"},
		"tokensIn": {sql.tokensIn, "bigint, bigint, bigint", "1999990, 9223372036854775807, 1000"},
		"tokens":   {sql.tokens, "bytea[], bytea[], bigint", fmt.Sprintf("%s, %s, 1999990", keys, same(`'\x01'::bytea`))},
		"step":     {sql.step, "bigint", "5000"},
		"prune":    {sql.prune, "bigint, bigint, bigint", "1000, 6000, 1000000"},
		"numbered": {sql.lastBefore, "bigint", "1999990"},
		"look":     {sql.readKeys, "bytea[]", keys},
		"followed": {sql.hasChangeFrom, "bigint", "1999990"},
		"before":   {sql.before, "bigint[], int[]", "'{1999990, 1999991}', '{0, 0}'"},
		"presentPage": {sql.presentPage, "bytea, bytea, bigint, bytea, bigint, int, text, bigint, bigint, bool, bigint",
			`'key-5', '\xff', 101, null, 0, 0, '{}', 10000, 101, false, 1000000`},
		"pastPage": {sql.historyPage, "bytea, bytea, bigint, bytea, bigint, int, text, bigint, bigint, bool, bigint",
			`'key-5', '\xff', 101, null, 1999000, 0, '{}', 10000, 101, false, 1000000`},
		"presentSpan":  {sql.presentRange, "bytea, bytea, bigint, bool, bigint", `'key-5', '\xff', 101, false, 1000000`},
		"presentRows":  {sql.presentRows, "bytea, bytea, bigint, bool", `'key-5', '\xff', 101, false`},
		"presentCount": {sql.presentCount, "bytea, bytea, bytea", `'key-5', 'key-6', null`},
		"unchanged":    {sql.noChangeSince, "bytea, bytea, bigint, int, bigint", `'key-5', 'key-6', 1999000, 0, 1000`},
		"countSince":   {sql.countSince, "bytea, bytea, bytea, bigint, int, bigint", `'key-5', 'key-6', null, 1999000, 0, 1000`},
		"placeAt":      {sql.changeAt, "bigint, int", "1999990, 0"},
		"readOne":      {sql.readOne, "bytea", `'\x00'`},
		"readStrong":   {sql.readStrong, "bytea, bigint, int, bytea", `'\x00', 1999990, 0, '\x00'`},
		"readMany":     {sql.readMany, "bytea[], bigint, int, bytea", keys + `, 1999990, 0, '\x00'`},
		"readAfter":    {sql.readAfter, "bytea, bigint, bigint", "'key-5', 500, 1000000"},
		"checkColumns": {sql.checkColumns, "bytea, bigint, bigint", "'key-5', 500, 1000000"},
		"updateOne": {sql.updateOne, "bytea, bytea, bytea, bytea, timestamptz, bool, bigint, bytea, bytea, bytea",
			`'\x01', '\x00', '\x00', '\x01', 'infinity', true, 0, '\x00', null, '\x00'`},
		"quickOne": {sql.quickOne.text(true), "bytea, bytea, bytea, bytea, timestamptz, bigint, bytea, bytea, bytea",
			`'\x01', '\x00', '\x00', '\x01', 'infinity', 0, '\x00', null, '\x00'`},
		"quickMany": {sql.quickMany.text(true), "bytea[], bytea[], bytea[], bytea[], timestamptz, bigint, bytea[], bytea[], bytea[]", strings.Join([]string{
			keys, same(`'\x00'::bytea`), same(`'\x00'::bytea`), same(`'\x01'::bytea`), "'infinity'", "0",
			same(`'\x00'::bytea`), same("null::bytea"), same(`'\x00'::bytea`)}, ", ")},
		"quickDeletions": {sql.quickDeletions.text(true), "bytea[], bytea[], bytea[], bytea[], timestamptz, bigint", strings.Join([]string{
			keys, same(`'\x00'::bytea`), same(`'\x00'::bytea`), same(`'\x01'::bytea`), "'infinity'", "0"}, ", ")},
		"quickLocks": {sql.quickLocks, "bigint, bytea[], timestamptz, bigint", "1, " + keys + ", 'infinity', 0"},
		"quickCreations": {sql.quickCreations.text(true), "bigint, bytea[], bytea[], bytea[], bytea[], bytea[], bytea[]", strings.Join([]string{
			"1", keys, same(`'\x00'::bytea`), same(`'\x01'::bytea`), same(`'\x00'::bytea`), same("null::bytea"), same(`'\x00'::bytea`)}, ", ")},
		"quickProof": {sql.quickProof, "bytea[], bytea[]", keys + ", " + same(`'\x00'::bytea`)},
		"deleteOne":  {sql.deleteOne, "bytea, bytea, bytea, bytea, timestamptz, bool, bigint", `'\x01', '\x00', '\x00', '\x01', 'infinity', true, 0`},
		"updateMany": {sql.updateMany, "bytea[], bytea[], bytea[], bytea[], bytea[], bytea[], bytea[], timestamptz, bool, bigint", strings.Join([]string{
			keys, same(`'\x00'::bytea`), same(`'\x00'::bytea`), same(`'\x01'::bytea`),
			same(`'\x00'::bytea`), same("null::bytea"), same(`'\x00'::bytea`), "'infinity'", "true", "0"}, ", ")},
		"updateTx": {sql.updateTx, "bytea[], bytea[], bytea[], bytea[], bytea[], bytea[], bytea[], timestamptz, bool, bigint, int[]", strings.Join([]string{
			keys, same(`'\x00'::bytea`), same(`'\x00'::bytea`), same(`'\x01'::bytea`),
			same(`'\x00'::bytea`), same("null::bytea"), same(`'\x00'::bytea`), "'infinity'", "true", "0", same("n - 1")}, ", ")},
	}
	for name, s := range statements {
		exec(fmt.Sprintf(`prepare "%s" (%s) as %s`, name, s.types, s.sql))
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			exec("analyze " + changes)
			exec("analyze " + resources)
		}
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			exec("set plan_cache_mode = " + mode)
			for name, s := range statements {
				rows, err := conn.Query(ctx, fmt.Sprintf(`explain execute "%s" (%s)`, name, s.arguments), pgx.QueryExecModeSimpleProtocol)
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
				if err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				plan := strings.Join(lines, "\n")
				if strings.Contains(plan, "Seq Scan on changes ") || strings.Contains(plan, "Seq Scan on resources") {
					t.Errorf("%s, analyzed: %v, %s:\n%s", name, analyzed, mode, plan)
				}
			}
		}
	}
	// A feed executes this one all the time. Planning takes longer than reading some changes.
	exec("set plan_cache_mode = auto")
	exec(fmt.Sprintf("prepare planned (%s) as %s", statements["changes"].types, sql.changes))
	for range 7 {
		exec("execute planned (1999990, 0, 5000, 1000000)")
	}
	var generic, custom int
	if err := conn.QueryRow(ctx, "select generic_plans, custom_plans from pg_prepared_statements where name = 'planned'").Scan(&generic, &custom); err != nil {
		t.Fatal(err)
	}
	if generic == 0 {
		t.Errorf("the changes were read with a new plan each time, %d times", custom)
	}
}

// TestPastOfUnchangedResources reads a page of the past with resources that have not changed since. Postgres neither searches
// the log for them nor reads all of it.
func TestPastOfUnchangedResources(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	schema := server.Schema(t)
	b := openHandle(t, ctx, server.StoreURLIn(t, schema))
	for i := range 30 {
		if _, err := b.WriteCAS(ctx, named(fmt.Sprintf("name-%02d", i), "")); err != nil {
			t.Fatal(err)
		}
	}
	_, newest, err := b.handle.Revisions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	rows, _ := server.Connect(t).Query(ctx, "explain (analyze) "+newStatements(schema).historyPage, []byte{}, afterAll, 11, nil, newest, 0, "{}", 10000, 11, false, 1<<20)
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	plan := strings.Join(lines, "\n")
	searches := 0
	for _, line := range lines {
		if strings.Contains(line, "Function Scan on past") {
			if searches++; !strings.Contains(line, "never executed") {
				t.Error("the log was searched")
			}
		}
	}
	if searches == 0 || strings.Contains(plan, "Seq Scan on changes") {
		t.Errorf("expected a search that is not carried out, and no reading of the log:\n%s", plan)
	}
}
