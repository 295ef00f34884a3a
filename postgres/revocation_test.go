//go:build integration

package postgres

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// lostCreation returns a creation with an attempt whose answer was lost, and which may still arrive.
func lostCreation(t *testing.T, lock int64) (*mutation, *attempt) {
	t.Helper()
	k := key.Key{Group: "g", Kind: "Kind", Name: "one"}
	create, err := newWrite(k, &resourcepb.Resource{Id: k.ID("uid", "v1")})
	if err != nil {
		t.Fatal(err)
	}
	lost := &attempt{lock: lock, expires: time.Now().Add(time.Hour)}
	create.lostAttempts = []*attempt{lost}
	return create, lost
}

func connectTo(t *testing.T, ctx context.Context, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeConn(conn) })
	return conn
}

// TestAttemptArrivesWhileItIsRevoked delivers an attempt during the commit of its revocation, which may take long without a
// standby. The attempt waits, and then does nothing, at any default isolation level.
func TestAttemptArrivesWhileItIsRevoked(t *testing.T) {
	t.Parallel()
	for i, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			ctx := fixture.Context(t)
			server := env.Postgres(t)
			b := openHandle(t, ctx, server.StoreURL(t))
			w := b.handle.writer
			create, lost := lostCreation(t, 470000+int64(i))

			revoker := connectTo(t, ctx, server.URL)
			tx, err := revoker.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			var revoked bool
			if err := tx.QueryRow(ctx, w.database.sql.revoke, lost.lock).Scan(&revoked); err != nil || !revoked {
				t.Fatalf("revoked: %t, %v", revoked, err)
			}

			late := connectTo(t, ctx, server.URL)
			if _, err := late.Exec(ctx, `set default_transaction_isolation = '`+isolation+`'`); err != nil {
				t.Fatal(err)
			}
			pid := late.PgConn().PID()
			arrived := make(chan error, 1)
			go func() { arrived <- w.sender.apply(ctx, late, lost, []*mutation{create}, false) }()
			fixture.Eventually(t, "the attempt to wait for its lock", func() bool {
				var waits bool
				err := revoker.QueryRow(ctx, `select exists (select from pg_locks where pid = $1 and locktype = 'advisory' and not granted)`, pid).Scan(&waits)
				return err == nil && waits
			})
			if err := tx.Commit(ctx); err != nil {
				t.Fatal(err)
			}
			if err := <-arrived; err == nil {
				t.Error("a revoked attempt was applied")
			}
			if res, err := b.handle.Get(ctx, storage.StrongConsistency, create.Key); res != nil || err != nil {
				t.Errorf("it has created %v, %v", res, err)
			}
		})
	}
}

// TestAttemptLeavesNothingBehind applies an attempt in sessions of each isolation level. None leaves a row that marks it as
// revoked.
func TestAttemptLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	conn := connectTo(t, ctx, server.URL)
	for _, isolation := range []string{"read committed", "repeatable read", "serializable"} {
		if _, err := conn.Exec(ctx, `set default_transaction_isolation = '`+isolation+`'`); err != nil {
			t.Fatal(err)
		}
		k := key.Key{Group: "g", Kind: "Kind", Name: isolation}
		create, err := newWrite(k, &resourcepb.Resource{Id: k.ID("uid", "v1")})
		if err != nil {
			t.Fatal(err)
		}
		a := &attempt{lock: 4714, expires: time.Now().Add(time.Hour)}
		if err := b.handle.sender.apply(ctx, conn, a, []*mutation{create}, false); err != nil || !create.isApplied {
			t.Errorf("%s: applied: %t, %v", isolation, create.isApplied, err)
		}
		var rows int
		if err := conn.QueryRow(ctx, b.handle.database.sql.withNames(`select count(*) from $revoked`)).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%s: %d attempts are revoked, %v", isolation, rows, err)
		}
	}
}

// TestRevokedAgain revokes an attempt again, because the first answer was lost, or reported that the standby may lack it. The
// commit must wait for the standby like the first one, so the statement must write.
func TestRevokedAgain(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	conn := connectTo(t, ctx, server.URL)
	for range 2 {
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var revoked, writes bool
		if err := tx.QueryRow(ctx, b.handle.database.sql.revoke, 4712).Scan(&revoked); err != nil || !revoked {
			t.Fatalf("revoked: %t, %v", revoked, err)
		}
		if err := tx.QueryRow(ctx, `select pg_current_xact_id_if_assigned() is not null`).Scan(&writes); err != nil || !writes {
			t.Errorf("the revocation writes: %t, %v", writes, err)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSettlingIsRefused makes the database refuse the query for the outcome of a lost attempt. That refusal is not the write's
// result.
func TestSettlingIsRefused(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	w := b.handle.writer
	create, _ := lostCreation(t, 4713)
	if _, err := connectTo(t, ctx, server.URL).Exec(ctx, w.database.sql.withNames(`drop table $revoked`)); err != nil {
		t.Fatal(err)
	}
	err := w.retryResolving(ctx, []*mutation{create}, func(context.Context) error {
		t.Error("the mutation is sent again")
		return nil
	})
	if !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("the write's error is %v, expected ErrInconsistent, because it may still be applied", err)
	}
}
