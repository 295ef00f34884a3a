//go:build integration

package postgres

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestRefusalIsNotSettled commits a lost attempt of a transaction just before the next attempt, which is refused, and then keeps the outcome of the
// lost attempt unknown. The refusal is not the result of the transaction: it reports the transaction's own success as a conflict.
func TestRefusalIsNotSettled(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	h, conn := b.handle, server.Connect(t)
	m := mutationOf(t, driver.Write, createdResource(t, ctx, b, "replaced"))
	check := mutationOf(t, driver.Check, createdResource(t, ctx, b, "checked"))
	name := func(name string) string { return pgx.Identifier{h.database.opts.Schema, name}.Sanitize() }
	// The first statement that searches for tokens does not see the change of the lost attempt. All later ones fail.
	_, err := conn.Exec(ctx, fmt.Sprintf(`create function %s() returns boolean language plpgsql as $body$
		begin
			update %s set version = '\x%x' where key = '\x%x' and version <> '\x%[3]x';
			if not found then
				raise exception using errcode = 'query_canceled';
			end if;
			return true;
		end $body$`, name("outcome"), name("resources"), m.token, m.keyBytes))
	if err != nil {
		t.Fatal(err)
	}
	h.database.sql.tokens += " where " + name("outcome") + "()"
	for _, m := range []*mutation{m, check} {
		m.lostAttempts = []*attempt{{expires: time.Now()}}
	}
	call, startTimeout := DelayedTimeout(t)
	result := make(chan error, 1)
	go func() { result <- h.writer.commit(call, []*mutation{check, m}) }()
	isApplied := func() bool {
		var stored []byte
		if err := conn.QueryRow(ctx, "select version from "+name("resources")+" where key = $1", m.keyBytes).Scan(&stored); err != nil {
			t.Fatal(err)
		}
		return string(stored) == string(m.token)
	}
	fixture.Eventually(t, "the lost attempt to be applied", func() bool { return isApplied() || len(result) > 0 })
	startTimeout(3 * time.Second)
	err = <-result
	if refused := (*storage.OpError)(nil); errors.As(err, &refused) || !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, expected ErrInconsistent and no OpError", err)
	}
	if !isApplied() {
		t.Error("the lost attempt was not applied")
	}
}
