//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/postgres"
)

// plainPool returns a prepared pool that accepts any server.
func plainPool(t *testing.T, dsn string) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	postgres.Prepare(config)
	pool, err := pgxpool.NewWithConfig(fixture.Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	return pool
}

// TestPoolLeadsToStandby gives a backend a pool that accepts any server, and leads it to a standby. No strong read is answered
// there, and watches continue after its promotion.
func TestPoolLeadsToStandby(t *testing.T) {
	t.Parallel()
	pair := env.StartPostgresPair(t)
	proxy := faultproxy.New(t, pair.Primary.Addr)
	opts := &postgres.Options{Schema: "store"} // dropped with the servers
	b, err := postgres.New(fixture.Context(t), plainPool(t, pair.Primary.At(t, proxy.Addr()).URL), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	one := fixture.Write(t, b, fixture.Resource("one", "v"))
	pair.CatchUp(t)
	_, err = postgres.New(fixture.Context(t), plainPool(t, pair.Standby.URL), opts)
	if !errors.Is(err, storage.ErrInconsistent) || !strings.Contains(err.Error(), "standby") {
		t.Errorf("opened on a standby: %v, expected ErrInconsistent with the standby", err)
	}
	w := fixture.WatchAll(t, b)
	expect(t, "snapshot", w, one)
	endOfSnapshot(t, w)

	proxy.Refuse()
	proxy.Redirect(pair.Standby.Addr)
	pair.Primary.Kill(t)
	proxy.Resume()
	calls := map[string]func(context.Context) error{
		"read": func(ctx context.Context) error {
			_, err := b.Read(ctx, storage.StrongConsistency, one.Id)
			return err
		},
		"list": func(ctx context.Context) error {
			_, err := b.List(ctx, storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
			return err
		},
		"page": func(ctx context.Context) error {
			_, err := b.ListPage(ctx, fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{})
			return err
		},
		"owner references": func(ctx context.Context) error {
			_, err := b.OwnerReferences(ctx, one.Id)
			return err
		},
		"journal": func(ctx context.Context) error {
			journal, _ := storage.As[driver.Mover](b)
			_, _, err := journal.ReadNote(ctx, "note")
			return err
		},
		"watch": func(ctx context.Context) error {
			w, err := b.WatchList(ctx, fixture.AllTypes, fixture.AllTenancies, "")
			if err == nil {
				w.Close()
			}
			return err
		},
	}
	for name, call := range calls {
		fixture.Eventually(t, name+" on a standby to name it", func() bool {
			err := call(fixture.CallTimeout(context.Background(), t, time.Second))
			if !isInconsistent(err) {
				t.Fatalf("%s on a standby: %v, expected ErrInconsistent for lack of time", name, err)
			}
			return strings.Contains(err.Error(), "standby")
		})

	}
	pair.Promote(t)
	for name, call := range calls {
		if err := call(fixture.Context(t)); err != nil {
			t.Errorf("%s after the promotion: %v", name, err)
		}
	}
	expect(t, "the watch", w, fixture.Write(t, b, fixture.Resource("two", "v")))
}

// TestReplicaOnAnotherTimeline reads from the promoted standby, with the old primary as its replica. The old primary came back as a
// standby with commits that the fail-over lost. Its log is longer, but it is another timeline.
func TestReplicaOnAnotherTimeline(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	pair := env.StartPostgresPair(t)
	const schema = "store" // dropped with the servers
	old := fixture.Open(t, pair.Primary.StoreURLIn(t, schema))
	kept := fixture.Write(t, old, fixture.Resource("one", "kept"))
	pair.CatchUp(t)
	pair.Separate(t)
	lost := kept
	for range 50 {
		res := fixture.Resource("one", "lost"+strings.Repeat("x", 10_000))
		res.Version = lost.Version
		lost = fixture.Write(t, old, res)
	}
	pair.Primary.Exec(t, "sh", "-c", `touch "$PGDATA"/standby.signal`)
	pair.Primary.Restart(t)
	pair.Promote(t)
	b := fixture.Open(t, pair.Standby.StoreURLIn(t, schema, "replica="+url.QueryEscape(pair.Primary.URL)))
	other := fixture.Write(t, b, fixture.Resource("other", "v"))
	var present, past string
	if err := pair.Standby.Connect(t).QueryRow(ctx, "select pg_current_wal_insert_lsn()::text").Scan(&present); err != nil {
		t.Fatal(err)
	}
	var beyond bool
	if err := pair.Primary.Connect(t).QueryRow(ctx, "select pg_last_wal_replay_lsn()::text, pg_last_wal_replay_lsn() > $1::text::pg_lsn", present).Scan(&past, &beyond); err != nil {
		t.Fatal(err)
	}
	if !beyond {
		t.Fatalf("the old primary's log ends at %s, the new one's at %s: the test needs it to be longer", past, present)
	}
	if res, err := b.Read(ctx, storage.EventualConsistency, kept.Id); err != nil || res.Version != kept.Version {
		t.Errorf("read version %s, %v; expected %s", res.GetVersion(), err, kept.Version)
	}
	listed, err := b.List(ctx, storage.EventualConsistency, fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil || len(listed) != 2 || listed[0].Version != kept.Version || listed[1].Version != other.Version {
		t.Errorf("%d listed, %v; expected the versions %s and %s", len(listed), err, kept.Version, other.Version)
	}
}

// TestPoolIsNotPrepared gives a backend a pool whose connections do not record warnings. A cancelled wait for the standby would
// stay unnoticed.
func TestPoolIsNotPrepared(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	pool, err := pgxpool.New(fixture.Context(t), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	b, err := postgres.New(fixture.Context(t), pool, &postgres.Options{Schema: server.Schema(t)})
	if err == nil {
		_ = b.Close()
	}
	if !errors.Is(err, storage.ErrInvalid) {
		t.Errorf("opened with a pool that Prepare has not configured: %v, expected ErrInvalid", err)
	}
}
