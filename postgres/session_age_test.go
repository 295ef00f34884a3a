//go:build integration

package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage/internal/test/env"
)

// TestSessionIsAskedAnew writes on a connection that was idle for some minutes, as long as clients commonly keep history. The
// session's state is read again, because otherwise a lost answer could not be resolved after a compaction.
func TestSessionIsAskedAnew(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	t.Cleanup(cancel)
	b := openHandle(t, ctx, env.Postgres(t).StoreURL(t, "pool_max_conns=1", "retention=24h"))
	d := b.handle.database
	onSession := func(do func(*session)) {
		t.Helper()
		err := d.use(ctx, func(conn *pgxpool.Conn) error {
			do(d.sessions.of(conn.Conn()))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.WriteCAS(ctx, named("first", "")); err != nil {
		t.Fatal(err)
	}
	var serial uint64
	var rested time.Time
	onSession(func(s *session) {
		s.clockReadAt = s.clockReadAt.Add(-3 * time.Minute)
		serial, rested = s.serial, s.clockReadAt
	})
	if _, err := b.WriteCAS(ctx, named("second", "")); err != nil {
		t.Fatal(err)
	}
	onSession(func(s *session) {
		if s.serial != serial || !s.clockReadAt.After(rested) {
			t.Errorf("session %d was asked at %v, expected session %d after %v", s.serial, s.clockReadAt, serial, rested)
		}
	})
}
