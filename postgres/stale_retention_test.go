//go:build integration

package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/resourcepb"
)

// opened creates a store with a few changes.
func opened(t *testing.T, ctx context.Context) *Backend {
	t.Helper()
	b := openHandle(t, ctx, env.Postgres(t).StoreURL(t))
	for _, name := range []string{"a", "b", "c"} {
		if _, err := b.WriteCAS(ctx, &resourcepb.Resource{Id: key.Key{Group: "g", Kind: "Kind", Name: name}.ID("uid", "v1")}); err != nil {
			t.Fatal(err)
		}
	}
	return b
}

// TestRetentionOfAnotherHistory continues a step of retention after the database was replaced, as when a process was suspended
// while an older backup was restored. The numbers that it read before are not valid for the new history.
func TestRetentionOfAnotherHistory(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	const elsewhere = 1000 // the last number there
	for _, keep := range []time.Duration{time.Hour, time.Nanosecond} {
		d := &database{opts: Options{Schema: b.handle.database.opts.Schema, Retention: keep}, sql: b.handle.database.sql, main: b.handle.database.main}
		r := &retention{d, nil}
		err := r.withLock(ctx, func(tx pgx.Tx) error {
			return r.move(ctx, tx, elsewhere, time.Hour)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	all := storage.UnversionedType{Group: storage.Wildcard, Kind: storage.Wildcard}
	w, err := b.WatchList(ctx, all, &resourcepb.Tenancy{}, "")
	if err != nil {
		t.Fatalf("after the step of retention: %v", err)
	}
	w.Close()
	r := &retention{b.handle.database, nil}
	if err := r.withLock(ctx, func(tx pgx.Tx) error { _, err := r.prune(ctx, tx); return err }); err != nil {
		t.Fatal(err)
	}
	var left int
	if err := b.handle.database.main.QueryRow(ctx, `select count(*) from "`+b.handle.database.opts.Schema+`".changes`).Scan(&left); err != nil || left != 3 {
		t.Errorf("%d changes remain of 3, all of which must stay readable: %v", left, err)
	}
}

// TestStrangersLock waits for the end of an attempt that holds no lock, so its key is 0, while a foreign session holds the
// advisory lock 0.
func TestStrangersLock(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := opened(t, ctx)
	stranger := env.Postgres(t).Connect(t)
	if _, err := stranger.Exec(ctx, "select pg_advisory_lock(0)"); err != nil {
		t.Fatal(err)
	}
	conn, err := b.handle.database.main.Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if err := b.handle.settler.awaitEnd(ctx, conn.Conn(), &attempt{expires: time.Now().Add(-time.Hour)}); err != nil {
		t.Errorf("an attempt that was over an hour ago: %v", err)
	}
}
