//go:build integration

package postgres

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
)

// statementCount counts the statements of a pool.
type statementCount struct{ n atomic.Int64 }

func (c *statementCount) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	c.n.Add(1)
	return ctx
}

func (*statementCount) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestPageBeforeManyCreations reads small pages at a position with few resources before it and very many creations after it. Later
// creations are skipped in a few statements, not key by key.
func TestPageBeforeManyCreations(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	server := env.Postgres(t)
	count := new(statementCount)
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
	var names string
	from := []byte(nil)
	for more := true; more; {
		past, err := b.handle.ReadAt(ctx, &driver.HistoryQuery[position]{At: &at, From: from, Limit: 1}, func(v *driver.Version) error {
			names += string(v.Key[len(v.Key)-1:])
			from = append(append([]byte{}, v.Key...), 0)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		more = past.More
	}
	if n := count.n.Load() - before; names != "az" || n > 60 {
		t.Errorf("read %q with %d statements, expected two names with some", names, n)
	}
}
