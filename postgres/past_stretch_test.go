//go:build integration

package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
)

// stretchCount counts the statements of a pool that read a stretch of keys. They are part of batches.
type stretchCount struct{ n atomic.Int64 }

func (*stretchCount) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (*stretchCount) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (*stretchCount) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

func (c *stretchCount) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if strings.Contains(data.SQL, "stretch") {
		c.n.Add(1)
	}
}

func (*stretchCount) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// TestPageBeforeManyCreations reads small pages at a position with few resources before it and very many creations after it. Later
// creations are skipped in a few statements, not key by key.
func TestPageBeforeManyCreations(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	count := new(stretchCount)
	b := openQuiet(t, ctx, server, server.Schema(t), count)
	for _, name := range []string{"a", "z"} {
		if _, err := b.WriteCAS(ctx, named(name, "")); err != nil {
			t.Fatal(err)
		}
	}
	at, err := b.handle.source.history.newest(ctx, b.handle.database.main)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		ops := make([]storage.Op, maxOps)
		for j := range ops {
			ops[j].Write = named(fmt.Sprintf("later-%d-%d", i, j), "")
		}
		if _, err := b.Commit(ctx, ops); err != nil {
			t.Fatal(err)
		}
	}
	before := count.n.Load()
	names := readSingly(t, ctx, b, &at)
	if n := count.n.Load() - before; names != "az" || n > 60 {
		t.Errorf("read %q with %d statements, expected two names with some", names, n)
	}
}

// readSingly reads the store at a position in pages of one resource, and returns the last letters of their names.
func readSingly(t *testing.T, ctx context.Context, b *Backend, at *position) (names string) {
	t.Helper()
	from := []byte(nil)
	for more := true; more; {
		past, err := b.handle.ReadAt(ctx, &driver.HistoryQuery[position]{At: at, From: from, Limit: 1}, func(v *driver.Version) error {
			names += string(v.Key[len(v.Key)-1:])
			from = append(append([]byte{}, v.Key...), 0)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		more = past.More
	}
	return names
}

// TestPageBesideDeletions reads small pages of a store with many deletions before the position, which the log still contains. The pages
// need no more statements than without the deletions.
func TestPageBesideDeletions(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	count := new(stretchCount)
	b := openQuiet(t, ctx, server, server.Schema(t), count)
	write := func(name string) position {
		t.Helper()
		if _, err := b.WriteCAS(ctx, named(name, "")); err != nil {
			t.Fatal(err)
		}
		at, err := b.handle.source.history.newest(ctx, b.handle.database.main)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	statements := func(at position, expected string, tailLimit int) int64 {
		t.Helper()
		b.handle.pages.tailLimit = tailLimit
		before := count.n.Load()
		if names := readSingly(t, ctx, b, &at); names != expected {
			t.Errorf("read %q, expected %q", names, expected)
		}
		return count.n.Load() - before
	}
	write("a")
	first := write("z")
	write("since-x")
	expected := statements(first, "az", maxIndexedChanges)
	for i := range 4 {
		created, deleted := make([]storage.Op, maxOps), make([]storage.Op, maxOps)
		for j := range created {
			created[j].Write = named(fmt.Sprintf("deleted-%d-%d", i, j), "")
		}
		resources, err := b.Commit(ctx, created)
		if err != nil {
			t.Fatal(err)
		}
		for j, res := range resources {
			deleted[j].Delete, deleted[j].Version = res.Id, res.Version
		}
		if _, err := b.Commit(ctx, deleted); err != nil {
			t.Fatal(err)
		}
	}
	second := write("since-y")
	write("since-z")
	for _, tailLimit := range []int{maxIndexedChanges, 0} {
		if n := statements(first, "az", tailLimit); n > expected {
			t.Errorf("%d statements beside creations and deletions after the position, expected %d; tail limit %d", n, expected, tailLimit)
		}
		if n := statements(second, "axyz", tailLimit); n > 2*expected {
			t.Errorf("%d statements beside deletions before the position, expected %d for each two pages; tail limit %d", n, expected, tailLimit)
		}
	}
}
