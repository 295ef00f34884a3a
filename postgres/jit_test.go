//go:build integration

package postgres

import (
	"net/url"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestSessionsHaveNoJIT uses sessions for which every statement is expensive enough to be compiled.
func TestSessionsHaveNoJIT(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := openHandle(t, ctx, env.Postgres(t).StoreURL(t, "options="+url.PathEscape("-c jit=on -c jit_above_cost=0 -c enable_seqscan=off")))
	d := b.handle.database
	for range 2 {
		err := d.use(ctx, func(conn *pgxpool.Conn) error {
			var jit, seqScan string
			err := conn.QueryRow(ctx, "select current_setting('jit'), current_setting('enable_seqscan')").Scan(&jit, &seqScan)
			if err == nil && (jit != "off" || seqScan != "off") {
				t.Errorf("jit is %s, enable_seqscan is %s, expected off and off", jit, seqScan)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
