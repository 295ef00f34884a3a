//go:build integration

package postgres_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestSequenceBehindTheLog resets the sequence of changes, as after the promotion of a logical replica, which has the tables and not
// the sequence. No watch would return the next writes, so the store is refused, by an open handle too, until the sequence is repaired.
func TestSequenceBehindTheLog(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	b := fixture.Open(t, storeURL)
	res := fixture.Write(t, b, fixture.Resource("one", "v"))
	for range 5 {
		res = fixture.Write(t, b, res)
	}
	conn := server.Connect(t)
	setval := func(to string) {
		t.Helper()
		name := "'" + pgx.Identifier{schema, "changes_seq"}.Sanitize() + "'"
		if _, err := conn.Exec(ctx, "select setval("+name+", "+to+")"); err != nil {
			t.Fatal(err)
		}
	}
	setval("1")
	if other, err := storage.Open(ctx, storeURL); err == nil || !strings.Contains(err.Error(), "changes_seq") {
		if err == nil {
			_ = other.Close()
		}
		t.Errorf("opened with a sequence behind the log: %v, expected an error that names it", err)
	}
	if _, err := b.WriteCAS(ctx, fixture.Resource("two", "v")); err == nil || !strings.Contains(err.Error(), "changes_seq") {
		t.Errorf("written with a sequence behind the log: %v, expected an error that names it", err)
	}
	setval("1000")
	fixture.Write(t, fixture.Open(t, storeURL), res)
	fixture.Write(t, b, fixture.Resource("two", "v"))
}
