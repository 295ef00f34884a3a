//go:build integration

package migrations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

func TestMain(m *testing.M) { env.Main(m) }

// newStore creates a store and returns its server, its schema, and the steps plus a step of a given text.
func newStore(t *testing.T, text string) (server *env.PostgresServer, schema string, upgraded []step) {
	t.Helper()
	server = env.Postgres(t)
	schema = server.Schema(t)
	if from, err := Up(fixture.Context(t), server.Connect(t), schema); err != nil || from != 0 {
		t.Fatalf("Up returned version %d, %v, expected 0 for a new store", from, err)
	}
	return server, schema, append(slices.Clone(steps), newStep("next.sql", text))
}

func expectVersion(t *testing.T, conn *pgx.Conn, schema string, want int) {
	t.Helper()
	if version, err := Version(fixture.Context(t), conn, schema); err != nil || version != want {
		t.Errorf("the schema version is %d, expected %d: %v", version, want, err)
	}
}

// TestUpgradeTogether upgrades a store from several connections at once.
func TestUpgradeTogether(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server, schema, upgraded := newStore(t, "create table {{.schema}}.next ()")
	var calls sync.WaitGroup
	for range 6 {
		conn := server.Connect(t)
		calls.Go(func() {
			if _, err := up(ctx, conn, schema, upgraded); err != nil {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	conn := server.Connect(t)
	expectVersion(t, conn, schema, Latest+1)
	if version, err := check(ctx, conn, schema, upgraded); err != nil || version != Latest+1 {
		t.Errorf("check returned version %d, %v, expected %d", version, err, Latest+1)
	}
}

// manualDeadline is a context whose deadline passes when the test closes the channel.
type manualDeadline struct {
	context.Context
	passed chan struct{}
}

func (d *manualDeadline) Deadline() (time.Time, bool) { return time.Now().Add(time.Hour), true }
func (d *manualDeadline) Done() <-chan struct{}       { return d.passed }

func (d *manualDeadline) Err() error {
	select {
	case <-d.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// TestUpgradeOutlivesDeadline lets the deadline of an upgrade pass while the upgrade runs. The upgrade continues: otherwise a long one
// would never end.
func TestUpgradeOutlivesDeadline(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server, schema, upgraded := newStore(t, "update {{.schema}}.store set oldest = oldest")
	conn, upgrading := server.Connect(t), server.Connect(t)
	// The update waits for a lock whose key is the number of the table.
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
	deadline := &manualDeadline{ctx, make(chan struct{})}
	var call sync.WaitGroup
	call.Go(func() {
		if _, err := up(deadline, upgrading, schema, upgraded); err != nil {
			t.Errorf("upgrade: %v", err)
		}
	})
	fixture.Eventually(t, "the upgrade to run", func() bool {
		var running bool
		if err := conn.QueryRow(ctx, `select exists (select from pg_locks where relation = $1::regclass and mode = 'RowExclusiveLock')`, store).Scan(&running); err != nil {
			t.Fatal(err)
		}
		return running
	})
	close(deadline.passed)
	if _, err := conn.Exec(ctx, `select pg_advisory_unlock_all()`); err != nil {
		t.Fatal(err)
	}
	call.Wait()
	expectVersion(t, conn, schema, Latest+1)
}

// TestUpgradeStopsWaiting upgrades a store while another session holds one of its tables. After its deadline the upgrade stops waiting
// for the table: otherwise all later sessions would wait behind it. The same holds after the end of the upgrade's session. Nothing of the
// upgrade remains.
func TestUpgradeStopsWaiting(t *testing.T) {
	t.Parallel()
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("killed=", killed), func(t *testing.T) {
			t.Parallel()
			upgradeStopsWaiting(t, killed)
		})
	}
}

func upgradeStopsWaiting(t *testing.T, killed bool) {
	t.Helper()
	ctx := fixture.Context(t)
	server, schema, upgraded := newStore(t, "alter table {{.schema}}.resources add column next int; alter table {{.schema}}.changes add column next int")
	conn, holder := server.Connect(t), server.Connect(t)
	changes := pgx.Identifier{schema, "changes"}.Sanitize()
	if _, err := holder.Exec(ctx, `begin; select from `+changes); err != nil {
		t.Fatal(err)
	}
	waiting := func() (n int) {
		if err := conn.QueryRow(ctx, `select count(*) from pg_locks where relation = $1::regclass and not granted`, changes).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	brief, cancel := context.WithCancel(ctx)
	defer cancel()
	if !killed {
		brief, cancel = context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
	}
	upgrader := server.Connect(t)
	ended := make(chan error, 1)
	go func() {
		_, err := up(brief, upgrader, schema, upgraded)
		ended <- err
	}()
	if killed {
		fixture.Eventually(t, "the upgrade to wait for the table", func() bool { return waiting() > 0 })
		if _, err := conn.Exec(ctx, `select pg_terminate_backend($1)`, upgrader.PgConn().PID()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-ended; err == nil {
		t.Fatal("the store was upgraded while another session held its table")
	}
	fixture.Eventually(t, "no session to wait for the table", func() bool { return waiting() == 0 })
	if _, err := conn.Exec(ctx, `set lock_timeout = '10s'; select from `+pgx.Identifier{schema, "resources"}.Sanitize()); err != nil {
		t.Errorf("a program of the previous version: %v", err)
	}
	expectVersion(t, conn, schema, Latest)
	if _, err := holder.Exec(ctx, `rollback`); err != nil {
		t.Fatal(err)
	}
	if from, err := up(ctx, conn, schema, upgraded); err != nil || from != Latest {
		t.Errorf("upgraded from version %d: %v", from, err)
	}
	if _, err := Check(ctx, conn, schema); !errors.Is(err, storage.ErrNewerSchema) {
		t.Errorf("a program of the previous version opens the store: %v", err)
	}
}

// TestExpandThenContract upgrades a store by a step that programs of the previous version survive, and by one that they do not.
func TestExpandThenContract(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server, schema, expanded := newStore(t, fmt.Sprintf("-- lock: share on resources\n-- duration: constant\n-- oldest program: %d\ncreate table {{.schema}}.next ()", Latest))
	contracted := append(slices.Clone(expanded), newStep("contract.sql", "drop table {{.schema}}.next"))
	conn := server.Connect(t)
	planned, err := plan(Latest, schema, contracted)
	if err != nil || len(planned) != 2 || planned[0].Oldest != Latest || planned[0].Lock != "share on resources" || planned[1].Oldest != Latest+2 {
		t.Fatalf("plan returned %+v, %v", planned, err)
	}
	for i, next := range [][]step{expanded, contracted} {
		if from, err := up(ctx, conn, schema, next); err != nil || from != Latest+i {
			t.Fatalf("upgraded from version %d: %v", from, err)
		}
		version, err := Check(ctx, conn, schema)
		if refused := errors.Is(err, storage.ErrNewerSchema); version != Latest+i+1 || refused != (i == 1) || err != nil && !refused {
			t.Errorf("a program of the previous version, after %s: version %d, %v", next[len(next)-1].Name, version, err)
		}
	}
	if from, err := up(ctx, conn, schema, expanded); !errors.Is(err, storage.ErrNewerSchema) {
		t.Errorf("a program of the expanded version upgraded the contracted store from version %d: %v", from, err)
	}
}
