//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/migrations"
	"github.com/ashlar-dev/storage/postgres"
)

// expiring is a context whose time is over when the test says so.
type expiring struct {
	context.Context
	over chan struct{}
}

func (e *expiring) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (e *expiring) Done() <-chan struct{}       { return e.over }

func (e *expiring) Err() error {
	select {
	case <-e.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestUpgradeOutlivesDeadline lets the time of the one who opens a store end in the middle of its upgrade, as that of a large store
// does: the upgrade goes on, or it would never be done.
func TestUpgradeOutlivesDeadline(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	conn := server.Connect(t)
	schema := server.Schema(t)
	if _, err := migrations.Up(ctx, conn, schema, withoutHistory); err != nil {
		t.Fatal(err)
	}
	// The upgrade's first statement takes for as long as the test wants. The lock has the number of the table.
	store := pgx.Identifier{schema, "store"}.Sanitize()
	if _, err := conn.Exec(ctx, `
create function `+pgx.Identifier{schema, "slow"}.Sanitize()+`() returns trigger language plpgsql as $$
begin
    while not pg_try_advisory_xact_lock_shared(tg_relid::bigint) loop perform pg_sleep(0.01); end loop;
    return new;
end $$;
create trigger slow before update on `+store+` for each row execute function `+pgx.Identifier{schema, "slow"}.Sanitize()+`();
select pg_advisory_lock('`+store+`'::regclass::oid::bigint)`); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(server.StoreURLIn(t, schema))
	if err != nil {
		t.Fatal(err)
	}
	patience := &expiring{ctx, make(chan struct{})}
	var opened sync.WaitGroup
	opened.Go(func() {
		if b, err := postgres.Open(patience, u); err == nil {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, storage.ErrInconsistent) {
			t.Errorf("open: %v", err)
		}
	})
	fixture.Eventually(t, "the upgrade to be under way", func() bool {
		var begun bool
		if err := conn.QueryRow(ctx, `select exists (select from pg_locks where relation = $1::regclass and mode = 'RowExclusiveLock')`, store).Scan(&begun); err != nil {
			t.Fatal(err)
		}
		return begun
	})
	close(patience.over)
	if _, err := conn.Exec(ctx, `select pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
	opened.Wait()
	if version, err := migrations.Version(ctx, conn, schema); err != nil || version != migrations.Latest {
		t.Errorf("the schema version is %d, expected %d: %v", version, migrations.Latest, err)
	}
}

// TestUpgradeGivesUp opens an old store beside a stranger who holds one of its tables: what waited for the table does not go on to
// wait, with everybody else behind it, when the one who opens has gone.
func TestUpgradeGivesUp(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	conn, stranger := server.Connect(t), server.Connect(t)
	schema := server.Schema(t)
	if _, err := migrations.Up(ctx, conn, schema, withoutHistory); err != nil {
		t.Fatal(err)
	}
	changes := pgx.Identifier{schema, "changes"}.Sanitize()
	if _, err := stranger.Exec(ctx, `begin; select from `+changes); err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if b, err := storage.Open(brief, server.StoreURLIn(t, schema)); !errors.Is(err, storage.ErrInconsistent) {
		t.Fatalf("opened beside the stranger: %v, %v", b, err)
	}
	fixture.Eventually(t, "nobody to wait for the table", func() bool {
		var waiting bool
		if err := conn.QueryRow(ctx, `select exists (select from pg_locks where relation = $1::regclass and not granted)`, changes).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		return !waiting
	})
	if _, err := conn.Exec(ctx, `set lock_timeout = '10s'; select from `+pgx.Identifier{schema, "resources"}.Sanitize()); err != nil {
		t.Errorf("a program of the version before, after that: %v", err)
	}
	if _, err := stranger.Exec(ctx, `rollback`); err != nil {
		t.Fatal(err)
	}
	fixture.Open(t, server.StoreURLIn(t, schema))
}
