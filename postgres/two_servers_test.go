//go:build integration

package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage/internal/test/env"
)

// TestRevisionsOfOneServer reads the newest revision during a fail-over that lost changes, right after the old server has reported
// how far history is final. On the new server a lower number is drawn and not committed, so its newest change must not be taken as
// final.
func TestRevisionsOfOneServer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	before := env.Postgres(t).Database(t)
	b := openHandle(t, ctx, before.StoreURLIn(t, "store")) // dropped with the database
	if _, err := b.WriteCAS(ctx, named("first", "")); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	after := before.Copy(t)
	for _, server := range []*env.PostgresServer{before, after} {
		conn := server.Connect(t)
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		names := newStatements("store")
		if server == after { // a commit that stalls, between its number and its end
			for _, sql := range []string{note, "select nextval($seq_name)"} {
				if _, err := tx.Exec(ctx, names.withNames(sql)); err != nil {
					t.Fatal(err)
				}
			}
		}
		other := openHandle(t, ctx, server.StoreURLIn(t, "store"))
		for i := range map[bool]int{true: 1, false: 20}[server == after] {
			if _, err := other.WriteCAS(ctx, named(fmt.Sprint("later-", i), "")); err != nil {
				t.Fatal(err)
			}
		}
	}

	config, err := pgxpool.ParseConfig(before.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	var replaced atomic.Bool
	next, err := pgx.ParseConfig(after.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if replaced.Load() {
			c.Database = next.Database
		}
		return nil
	}
	traced := new(statementLog)
	config.ConnConfig.Tracer = traced
	config.AfterRelease = func(*pgx.Conn) bool {
		if len(traced.take("pg_locks")) > 0 {
			replaced.Store(true)
		}
		return !replaced.Load()
	}
	Prepare(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	through, err := New(ctx, pool, &Options{Schema: "store", NoListen: true, Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = through.Close() })
	_, newest, err := through.handle.Revisions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if newest < 21 {
		t.Errorf("the newest revision is %d, expected the old server's", newest)
	}
}
