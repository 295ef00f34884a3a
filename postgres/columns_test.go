//go:build integration

package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestCheckColumns damages each column that repeats a part of a resource.
func TestCheckColumns(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	b := fixture.Open(t, server.StoreURLIn(t, schema))
	owner := fixture.Write(t, b, fixture.Resource("owner", "v"))
	child := fixture.Resource("child", "v")
	child.Owner = owner.Id
	child = fixture.Write(t, b, child)
	child = fixture.Write(t, b, child) // so that the row names its last change
	fixture.Write(t, b, fixture.Resource("last", "v"))
	rows, _ := storage.As[driver.Bulk](b)
	wrong := func() []driver.Key {
		t.Helper()
		found, last, err := rows.CheckColumns(fixture.Context(t), nil, 10)
		if err != nil || last == nil {
			t.Fatalf("got %v, %v", last, err)
		}
		return found
	}
	if found := wrong(); len(found) > 0 {
		t.Fatalf("before the damage: %v", found)
	}
	// The last change of a row stays in the log, also before the horizon.
	past, _ := storage.As[history.Historian](b)
	_, newest, err := past.Revisions(fixture.Context(t))
	if err == nil {
		err = past.Compact(fixture.Context(t), newest)
	}
	if err != nil {
		t.Fatal(err)
	}
	if found := wrong(); len(found) > 0 {
		t.Fatalf("after a compaction: %v", found)
	}
	conn := server.Connect(t)
	table := pgx.Identifier{schema, "resources"}.Sanitize()
	for _, column := range []string{
		"uid = '\\x00'", "group_version = '\\x00'", "owner = null", "owner = '\\x00'", "version = '\\x00'",
		"created = created + 1", "writes = writes + 1", "modified = modified - 1", "modified_place = 7", "modified = 0",
		"created = null, writes = null, modified = null, modified_place = null",
	} {
		tx, err := conn.Begin(fixture.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		// The damage and its repair are two commits, because the check has a connection of its own.
		const copied = "create table if not exists pg_temp.saved as select * from "
		for _, sql := range []string{copied + table, "update " + table + " set " + column + " where owner is not null"} {
			if _, err := tx.Exec(fixture.Context(t), sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
		if err := tx.Commit(fixture.Context(t)); err != nil {
			t.Fatal(err)
		}
		if found := wrong(); len(found) != 1 || found[0] != key.Of(child.Id) {
			t.Errorf("%s: got %v", column, found)
		}
		for _, sql := range []string{"delete from " + table, "insert into " + table + " select * from pg_temp.saved", "drop table pg_temp.saved"} {
			if _, err := conn.Exec(fixture.Context(t), sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
}
