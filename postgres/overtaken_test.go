//go:build integration

package postgres

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/migrations"
)

// TestBatchMeetsLock sends a batch of updates while another transaction holds one of the rows. The batch does not wait, changes the
// other rows, and reports that row as locked.
func TestBatchMeetsLock(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	schema := server.Schema(t)
	conn, other := server.Connect(t), server.Connect(t)
	if _, err := migrations.Up(ctx, conn, schema); err != nil {
		t.Fatal(err)
	}
	resources := pgx.Identifier{schema, "resources"}.Sanitize()
	if _, err := conn.Exec(ctx, "insert into "+resources+" (key, uid, version, group_version, data, created, writes, modified, modified_place) "+
		"select k::bytea, 'uid', 'old', 'v1', 'data', 1, 2, 2, 0 from unnest('{a,b,c}'::text[]) k"); err != nil {
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
		applied, busy bool
		stored        string
	}
	sql := newStatements(schema)
	all := func(value string) [][]byte {
		return [][]byte{[]byte(value), []byte(value), []byte(value), []byte(value)}
	}
	send := func(expires time.Time) map[int]answer {
		t.Helper()
		answers := make(map[int]answer)
		rows, err := conn.Query(ctx, sql.updateMany, [][]byte{[]byte("a"), []byte("b"), []byte("c"), []byte("d")},
			all("uid"), all("old"), all("ours"), all("v1"), make([][]byte, 4), all("data"), expires, false, 0)
		if err != nil {
			t.Fatal(err)
		}
		var place int
		var version []byte
		var revision pgtype.Int8
		var busy bool
		_, err = pgx.ForEachRow(rows, []any{&place, nil, &version, &revision, &busy, nil, nil, nil}, func() error {
			answers[place] = answer{revision.Valid, busy, string(version)}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return answers
	}
	if answers := send(time.Now().Add(-time.Hour)); len(answers) > 0 {
		t.Errorf("after its time the statement answered %v", answers)
	}
	if answers, want := send(time.Now().Add(time.Hour)), map[int]answer{
		1: {applied: true, stored: "old"}, 2: {busy: true}, 3: {applied: true, stored: "old"}, 4: {},
	}; !maps.Equal(answers, want) {
		t.Errorf("the answers are %v, expected %v", answers, want)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if answers, want := send(time.Now().Add(time.Hour)), map[int]answer{
		1: {stored: "ours"}, 2: {stored: "theirs"}, 3: {stored: "ours"}, 4: {},
	}; !maps.Equal(answers, want) {
		t.Errorf("the answers are %v, expected %v", answers, want)
	}
	var state string
	if err := conn.QueryRow(ctx, "select string_agg(convert_from(version, 'UTF8'), ' ' order by key) from "+resources).Scan(&state); err != nil {
		t.Fatal(err)
	}
	if want := "ours theirs ours"; state != want {
		t.Errorf("stored are %q, expected %q", state, want)
	}
	if err := conn.QueryRow(ctx, "select string_agg(convert_from(key, 'UTF8'), ' ' order by key) from "+pgx.Identifier{schema, "changes"}.Sanitize()).Scan(&state); err != nil {
		t.Fatal(err)
	}
	if want := "a c"; state != want {
		t.Errorf("the log has %q, expected %q", state, want)
	}
}
