//go:build integration

package postgres

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

// tracer calls a function before each statement of a handle, in the handle's goroutine. The test can act between two statements.
type tracer struct {
	sends atomic.Pointer[func(sql []string)] // nil: no call
	one   sync.Mutex                         // held while sends is called
}

func (tr *tracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	tr.tell(data.SQL)
	return ctx
}

func (tr *tracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	var sql []string
	for _, queued := range data.Batch.QueuedQueries {
		sql = append(sql, queued.SQL)
	}
	tr.tell(sql...)
	return ctx
}

func (tr *tracer) tell(sql ...string) {
	if f := tr.sends.Load(); f != nil {
		tr.one.Lock()
		defer tr.one.Unlock()
		(*f)(sql)
	}
}

func (*tracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*tracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {
}
func (*tracer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// openTraced opens a store with a tracer.
func openTraced(t *testing.T, ctx context.Context, storeURL string) (*Backend, *tracer) {
	t.Helper()
	u, err := url.Parse(storeURL)
	if err != nil {
		t.Fatal(err)
	}
	at, err := parseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	tr := new(tracer)
	at.pool.ConnConfig.Tracer = tr
	b, err := at.open(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b, tr
}
