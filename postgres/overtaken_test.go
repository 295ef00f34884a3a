//go:build integration

package postgres

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/migrations"
)

// TestBatchIsOvertaken has a batch of updates wait for a row that another transaction is just changing. The batch finds the
// change, which came after its own beginning, and leaves that row alone.
func TestBatchIsOvertaken(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server := testenv.Postgres(t)
	schema := server.Schema(t)
	conn, other, observer := server.Connect(t), server.Connect(t), server.Connect(t)
	if _, err := migrations.Up(ctx, conn, schema, migrations.Latest); err != nil {
		t.Fatal(err)
	}
	resources := pgx.Identifier{schema, "resources"}.Sanitize()
	if _, err := conn.Exec(ctx, "insert into "+resources+" (key, uid, version, group_version, data) "+
		"select k::bytea, 'uid', 'old', 'v1', 'data' from unnest('{a,b,c}'::text[]) k"); err != nil {
		t.Fatal(err)
	}
	tx, err := other.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, "update "+resources+" set version = 'theirs' where key = 'b'"); err != nil {
		t.Fatal(err)
	}

	type answer struct {
		applied bool
		stored  string
	}
	answers := make(map[int]answer)
	done := make(chan error, 1)
	go func() {
		all := func(value string) [][]byte { return [][]byte{[]byte(value), []byte(value), []byte(value)} }
		rows, err := conn.Query(ctx, newStatements(schema).updateMany, [][]byte{[]byte("a"), []byte("b"), []byte("c")},
			all("uid"), all("old"), all("ours"), all("v1"), make([][]byte, 3), all("data"), longWait)
		if err == nil {
			var place int
			var a answer
			var version []byte
			_, err = pgx.ForEachRow(rows, []any{&place, &a.applied, nil, &version, nil, nil, new(pgtype.Uint64)}, func() error {
				a.stored = string(version)
				answers[place] = a
				return nil
			})
		}
		done <- err
	}()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for waits := false; !waits; {
		<-tick.C
		if err := observer.QueryRow(ctx, "select cardinality(pg_blocking_pids($1)) > 0", conn.PgConn().PID()).Scan(&waits); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if want := map[int]answer{1: {true, "old"}, 2: {false, "theirs"}, 3: {true, "old"}}; !maps.Equal(answers, want) {
		t.Errorf("the answers are %v, expected %v", answers, want)
	}
	var state string
	if err := conn.QueryRow(ctx, "select string_agg(convert_from(version, 'UTF8'), ' ' order by key) from "+resources).Scan(&state); err != nil {
		t.Fatal(err)
	}
	if want := "ours theirs ours"; state != want {
		t.Errorf("stored are %q, expected %q", state, want)
	}
	if err := conn.QueryRow(ctx, "select string_agg(convert_from(key, 'UTF8'), ' ' order by seq) from "+pgx.Identifier{schema, "changes"}.Sanitize()).Scan(&state); err != nil {
		t.Fatal(err)
	}
	if want := "a c"; state != want {
		t.Errorf("the log has %q, expected %q", state, want)
	}
}
