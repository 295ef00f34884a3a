//go:build integration

package env

import (
	"context"
	"testing"
)

func TestPostgres(t *testing.T) {
	t.Parallel()
	s := Postgres(t)
	if s != Postgres(t) {
		t.Error("two servers in one test binary")
	}
	conn := s.Connect(t)
	ctx := context.Background()

	var schema string
	t.Run("a schema lives as long as its test", func(t *testing.T) {
		schema = s.Schema(t)
		if _, err := conn.Exec(ctx, "CREATE SCHEMA "+schema+"; CREATE TABLE "+schema+".x (y int)"); err != nil {
			t.Fatal(err)
		}
	})
	var n int
	if err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_namespace WHERE nspname = $1", schema).Scan(&n); err != nil || n != 0 {
		t.Errorf("schema %s: %d left, %v", schema, n, err)
	}
	var collation string
	if err := conn.QueryRow(ctx, "SELECT datcollate FROM pg_database WHERE datname = current_database()").Scan(&collation); err != nil {
		t.Fatal(err)
	}
	if collation == "C" || collation == "POSIX" || collation == "C.UTF-8" {
		t.Errorf("the database's collation is %s: an order that depends on it would not show", collation)
	}
}

func TestPostgresRestart(t *testing.T) {
	t.Parallel()
	s := StartPostgres(t, "-c", "work_mem=5MB")
	ctx := context.Background()
	if _, err := s.Connect(t).Exec(ctx, "CREATE TABLE kept (v int); INSERT INTO kept VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"restart", func() { s.Restart(t) }},
		{"kill", func() { s.Kill(t); s.Start(t) }},
		{"pause", func() { s.Pause(t); s.Unpause(t) }},
	} {
		step.do()
		var mem string
		var n int
		if err := s.Connect(t).QueryRow(ctx, "SELECT current_setting('work_mem'), count(*) FROM kept").Scan(&mem, &n); err != nil {
			t.Fatalf("after %s: %v", step.name, err)
		}
		if mem != "5MB" || n != 1 {
			t.Errorf("after %s: work_mem %s, %d rows", step.name, mem, n)
		}
	}
}
