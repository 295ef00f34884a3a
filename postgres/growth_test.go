//go:build integration

package postgres

import (
	"context"
	"crypto/md5"
	"math"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage/internal/test/env"
)

// TestPlansWhenGrown executes statements in the session of a handle while the tables have three rows and Postgres has analyzed them.
// Then it lets the tables grow, and counts the pages that the same statements read.
func TestPlansWhenGrown(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	s := newPlanned(ctx, t)
	s.grow(ctx, t, 0, 3)
	s.analyze(ctx, t)
	config, err := pgxpool.ParseConfig(env.Postgres(t).URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns, config.ConnConfig.OnNotice = 1, s.plans.add
	Prepare(config)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b, err := New(ctx, pool, &Options{Schema: s.sql.schema, NoListen: true, Poll: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	d := b.handle.database

	key, piece, farFuture := []byte("group/kind/old-1"), []byte{0}, time.Now().Add(time.Hour)
	version := md5.Sum([]byte("1"))
	keys, pieces, tokens := [][]byte{key, key}, [][]byte{piece, piece}, [][]byte{version[:], version[:]}
	statements := map[string]struct {
		sql       string
		arguments []any
	}{
		"read":            {d.sql.readOne, []any{key}},
		"strong read":     {d.sql.readStrong, []any{key, 2, 0, piece}},
		"reads":           {d.sql.readMany, []any{[][]byte{key}, 2, 0, piece}},
		"tip":             {d.sql.tip, []any{2, 0, piece}},
		"changes":         {d.sql.changes, []any{3, 0, 1, pageBytes}},
		"last change":     {d.sql.last, []any{4}},
		"page":            {d.sql.presentRange, []any{key, afterAll, 10, false, pageBytes}},
		"list":            {d.sql.strongList, []any{key, append(key[:len(key):len(key)], 0), nil, 2, 0, piece}},
		"quick update":    {d.sql.quickOne.text(true), []any{key, piece, piece, piece, farFuture, 0, piece, nil, piece}},
		"quick updates":   {d.sql.quickMany.text(true), []any{keys, pieces, pieces, tokens, farFuture, 0, pieces, pieces, pieces}},
		"quick deletions": {d.sql.quickDeletions.text(true), []any{keys, pieces, pieces, tokens, farFuture, 0}},
		"locks":           {d.sql.quickLocks, []any{1, keys, farFuture, 0}},
		"quick creations": {d.sql.quickCreations.text(true), []any{1, keys, pieces, tokens, pieces, pieces, pieces}},
		"proof":           {d.sql.quickProof, []any{keys, tokens}},
		"update":          {d.sql.updateOne, []any{key, piece, piece, piece, farFuture, true, 0, piece, nil, piece}},
		"deletion":        {d.sql.deleteOne, []any{key, piece, piece, piece, farFuture, true, 0}},
	}
	execute := func(name string) {
		t.Helper()
		err := d.query(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			rows, err := conn.Query(ctx, statements[name].sql, statements[name].arguments...)
			if err != nil {
				return err
			}
			rows.Close()
			return rows.Err()
		})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := d.use(ctx, func(conn *pgxpool.Conn) error { _, err := conn.Exec(ctx, "set ashlar.creating = true"); return err }); err != nil {
		t.Fatal(err)
	}
	for name := range statements {
		for range 10 {
			execute(name)
		}
	}
	s.grow(ctx, t, 3, 20000)
	if err := d.checkGrowth(ctx); err != nil {
		t.Fatal(err)
	}
	if err := d.use(ctx, func(conn *pgxpool.Conn) error { explain(ctx, t, conn.Conn()); return nil }); err != nil {
		t.Fatal(err)
	}
	for name := range statements {
		s.plans.take()
		execute(name)
		plans := s.plans.take()
		if len(plans) == 0 {
			t.Errorf("%s: the server reported no plan", name)
		}
		for _, plan := range plans {
			if pages := pagesOf(t, plan); pages > manyPages {
				t.Errorf("%s, %d pages:\n%s", name, pages, plan)
			}
		}
	}
}

// TestSizeClass compares numbers of pages whose plans differ.
func TestSizeClass(t *testing.T) {
	t.Parallel()
	last := int64(0)
	for _, pages := range []int64{0, 1, 2, 4, 4096, 8192} {
		if c := sizeClass(pages); c <= last || c > 255 {
			t.Errorf("the class of %d pages is %d, after %d", pages, c, last)
		} else {
			last = c
		}
	}
	if c := sizeClass(math.MaxInt64); c != last {
		t.Errorf("the class of a large table is %d, expected %d", c, last)
	}
}
