//go:build integration

package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// crash kills a foreign session's server process, which ends all sessions, and waits until the server is back.
func crash(t *testing.T, server *env.PostgresServer) {
	t.Helper()
	conn, err := pgx.Connect(fixture.Context(t), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if !server.KillProcess(t, conn.PgConn().PID()) {
		t.Fatal("the process did not exist")
	}
	fixture.Eventually(t, "the session to end", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		return conn.Ping(ctx) != nil
	})

	server.Await(t)
}

// TestCrashAmidAborts proves that a watch does not depend on state that the server loses when one of its processes is killed. Ids
// of rolled back transactions are not flushed, and are assigned again after the crash.
func TestCrashAmidAborts(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	// Periodic log writes of the server would only shorten the time window of the fault.
	server := env.StartPostgres(t, "-c", "wal_writer_delay=10s")
	schema := server.Schema(t)
	proxy := faultproxy.New(t, server.Addr)
	writer := fixture.Open(t, server.StoreURLIn(t, schema))
	watcher := fixture.Open(t, server.At(t, proxy.Addr()).StoreURLIn(t, schema, "poll=20ms", "application_name="+schema))
	w := fixture.WatchAll(t, watcher)
	endOfSnapshot(t, w)

	var acked []*resourcepb.Resource
	writes := func(n int) {
		t.Helper()
		for range n {
			acked = append(acked, fixture.Write(t, writer, fixture.Resource(fmt.Sprint("key-", len(acked)), "v")))
		}
	}
	seen := 0
	events := func() {
		t.Helper()
		for ; seen < len(acked); seen++ {
			event := fixture.Next(t, w)
			if got, want := event.GetUpsert().GetResource(), acked[seen]; got.GetVersion() != want.Version {
				t.Fatalf("event %d is %v, expected %s at %s", seen, event, want.Id.Name, want.Version)
			}
		}
	}
	for range 2 {
		writes(5)
		events()

		// Transactions begin, get an id and are rolled back; then the watch polls, twice.
		stranger := server.Connect(t)
		for range 30 {
			if _, err := stranger.Exec(ctx, "begin; select pg_current_xact_id(); rollback"); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			looked(t, stranger, schema)
		}
		// The watcher's process is unreachable until the others have continued.
		proxy.Refuse()
		crash(t, server)
		writes(40)
		proxy.Resume()
		events()
	}
}

// looked waits until a session of this name has sent a new query.
func looked(t *testing.T, conn *pgx.Conn, name string) {
	t.Helper()
	ctx := fixture.Context(t)
	var now time.Time
	if err := conn.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "the watch to look for changes", func() bool {
		var n int
		if err := conn.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1 and query_start > $2", name, now).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n > 0
	})

}

// TestCrashesUnderLoad kills server processes, of the adapter and of others, while two handles write and others roll back.
func TestCrashesUnderLoad(t *testing.T) {
	t.Parallel()
	server := env.StartPostgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema, "application_name="+schema)
	ctx, cancel := context.WithCancel(context.Background())
	var aborters sync.WaitGroup
	defer aborters.Wait()
	defer cancel()
	for range 3 {
		aborters.Go(func() { abort(ctx, server.URL) })
	}
	throughOutage(t, func() storage.Backend { return fixture.Open(t, storeURL) }, func(c *churn) {
		for i := range 4 {
			var pids []uint32
			rows, err := server.Connect(t).Query(fixture.Context(t), "select pid from pg_stat_activity where application_name = $1", schema)
			if err == nil {
				pids, err = pgx.CollectRows(rows, pgx.RowTo[uint32])
			}
			if err != nil {
				t.Fatal(err)
			}
			if i%2 == 0 && len(pids) > 0 && server.KillProcess(t, pids[rand.IntN(len(pids))]) {
				server.Await(t)
			} else {
				crash(t, server)
			}
			before := c.successes.Load()
			fixture.Eventually(t, "writes to go on", func() bool { return c.successes.Load() >= before+50 })
		}
	})
}

// abort rolls back transactions that have an id until ctx ends. Some of them have written.
func abort(ctx context.Context, url string) {
	for ctx.Err() == nil {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			continue
		}
		for err == nil {
			_, err = conn.Exec(ctx, "begin; select pg_current_xact_id(); rollback")
		}
		_ = conn.Close(context.Background())
	}
}
