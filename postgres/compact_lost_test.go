//go:build integration

package postgres

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// proofHook calls f before the first statement that writes to the log of the server.
type proofHook struct {
	f atomic.Pointer[func(context.Context)]
}

func (h *proofHook) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, "pg_logical_emit_message") {
		if f := h.f.Swap(nil); f != nil {
			(*f)(ctx)
		}
	}
	return ctx
}

func (*proofHook) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestCompactionLostBeforeProof compacts a history again that is compacted already. Before the proof that the compaction is durable, it is
// reverted, as by a fail-over to a server without it. The call does not succeed without the compaction.
func TestCompactionLostBeforeProof(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	hook := new(proofHook)
	b := openQuiet(t, ctx, server, server.Schema(t), hook)
	for n := range 4 {
		if _, err := b.WriteCAS(ctx, orderResource(fmt.Sprint("resource-", n), "")); err != nil {
			t.Fatal(err)
		}
	}
	h := b.handle.historian
	_, newest, err := h.Revisions(ctx)
	if err == nil {
		err = h.Compact(ctx, newest)
	}
	if err != nil {
		t.Fatal(err)
	}
	other := server.Connect(t)
	revert := func(ctx context.Context) {
		if _, err := other.Exec(ctx, b.handle.database.sql.withNames("update $store set oldest = 0")); err != nil {
			t.Error(err)
		}
	}
	hook.f.Store(&revert)
	if err := h.Compact(ctx, newest-1); err != nil {
		t.Fatal(err)
	}
	if oldest, _, err := h.Revisions(ctx); err != nil || oldest < newest-1 {
		t.Errorf("the oldest revision is %d, %v, after a compaction to %d", oldest, err, newest-1)
	}
}
