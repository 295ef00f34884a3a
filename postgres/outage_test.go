//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// throughOutage runs writers and watches on two handles during trouble. No event is lost or repeated.
func throughOutage(t *testing.T, open func() storage.Backend, trouble func(c *churn)) {
	t.Helper()
	a, b := open(), open()
	c := newChurn(t, 20)
	c.mayFail = true
	followers := []*follower{
		follow(t, "watch of the writers' handle", fixture.WatchAll(t, a)),
		follow(t, "watch of another handle", fixture.WatchAll(t, b)),
	}
	for i := range 8 {
		c.writer(a, uint64(i), 0)
	}
	goOn := func() {
		before := c.successes.Load()
		fixture.Eventually(t, "writes to go on", func() bool { return c.successes.Load() >= before+100 })
	}
	goOn()
	trouble(c)
	goOn()
	close(c.stop)
	c.finish(b, followers...)
}

func TestServerRestart(t *testing.T) {
	t.Parallel()
	server := env.StartPostgres(t)
	storeURL := server.StoreURL(t)
	throughOutage(t, func() storage.Backend { return fixture.Open(t, storeURL) }, func(c *churn) {
		server.Restart(t)
		before := c.successes.Load()
		fixture.Eventually(t, "writes to go on", func() bool { return c.successes.Load() >= before+100 })
		server.Kill(t) // like a power cut
		server.Start(t)
	})
}

func TestServerPaused(t *testing.T) {
	t.Parallel()
	server := env.StartPostgres(t)
	storeURL := server.StoreURL(t)
	throughOutage(t, func() storage.Backend { return fixture.Open(t, storeURL) }, func(*churn) {
		server.Pause(t)
		defer server.Unpause(t)
		// Long enough for calls to exceed their deadlines. They report that, and the pause has no other effect.
		for range 2 {
			callsFail(t, storeURL)
		}
	})
}

// callsFail opens a handle on a server that does not answer, or is no primary.
func callsFail(t *testing.T, storeURL string) {
	t.Helper()
	if _, err := storage.Open(fixture.CallTimeout(context.Background(), t, 5*time.Second), storeURL); !errors.Is(err, storage.ErrInconsistent) {
		t.Errorf("opened a store: %v", err)
	}
}

func TestTerminatedBackends(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	conn := server.Connect(t)
	storeURL := server.StoreURLIn(t, schema, "application_name="+schema)
	throughOutage(t, func() storage.Backend { return fixture.Open(t, storeURL) }, func(c *churn) {
		for range 10 {
			before := c.successes.Load()
			fixture.Eventually(t, "writes to go on", func() bool { return c.successes.Load() >= before+20 })
			if _, err := conn.Exec(fixture.Context(t), "select pg_terminate_backend(pid) from pg_stat_activity where application_name = $1", schema); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestFailOver promotes a synchronous standby, and leads the store's address to it.
func TestFailOver(t *testing.T) {
	t.Parallel()
	pair := env.StartPostgresPair(t)
	ctx := fixture.Context(t)
	conn := pair.Primary.Connect(t)
	for _, setting := range []string{"synchronous_standby_names = '*'", "synchronous_commit = 'remote_apply'"} {
		if _, err := conn.Exec(ctx, "alter system set "+setting); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := conn.Exec(ctx, "select pg_reload_conf()"); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "the standby to be synchronous", func() bool {
		var n int
		if err := conn.QueryRow(ctx, "select count(*) from pg_stat_replication where sync_state = 'sync'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})

	proxy := faultproxy.New(t, pair.Primary.Addr)
	storeURL := pair.Primary.At(t, proxy.Addr()).StoreURL(t)
	reader := fixture.Open(t, storeURL)
	stored := fixture.Write(t, reader, fixture.Resource("one", startOver))
	throughOutage(t, func() storage.Backend { return fixture.Open(t, storeURL) }, func(*churn) {
		pair.Primary.Kill(t)
		proxy.Redirect(pair.Standby.Addr)
		proxy.Cut()
		// While it is a standby, no call reads old data from it.
		callsFail(t, storeURL)
		if _, err := reader.Read(fixture.CallTimeout(ctx, t, time.Second), storage.StrongConsistency, stored.Id); !isInconsistent(err) {
			t.Errorf("a strong read from the standby: %v", err)
		}
		pair.Promote(t)
	})
}

// TestReadOnlyPrimary makes the primary refuse writes. Writes wait for another primary; reads and watches continue.
func TestReadOnlyPrimary(t *testing.T) {
	t.Parallel()
	server := env.StartPostgres(t)
	ctx := fixture.Context(t)
	b := fixture.Open(t, server.StoreURL(t))
	w := fixture.WatchAll(t, b)
	endOfSnapshot(t, w)
	stored := fixture.Write(t, b, fixture.Resource("one", "v"))
	expect(t, "watch", w, stored)
	readOnly := func(setting string) {
		t.Helper()
		for _, sql := range []string{
			"alter system set default_transaction_read_only = " + setting,
			"select pg_reload_conf()",
		} {
			conn := server.Connect(t)
			if _, err := conn.Exec(ctx, "set default_transaction_read_only = off"); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(ctx, sql); err != nil {
				t.Fatal(err)
			}
		}
		fixture.Eventually(t, "the server to be told", func() bool {
			var now string
			if err := server.Connect(t).QueryRow(ctx, "show default_transaction_read_only").Scan(&now); err != nil {
				t.Fatal(err)
			}
			return now == setting
		})

	}
	readOnly("on")
	fixture.Eventually(t, "a write to be refused", func() bool {
		_, err := b.WriteCAS(fixture.CallTimeout(ctx, t, time.Second), fixture.Resource("two"+unique(), "v"))
		if err != nil && !isInconsistent(err) {
			t.Fatal(err)
		}
		return err != nil
	})

	read(t, b, stored.Id)
	go func() {
		_, _ = b.WriteCAS(ctx, fixture.Resource("waits", "v")) // until the primary takes writes again
	}()
	readOnly("off")
	for {
		event := fixture.Next(t, w)
		if event.GetUpsert().GetResource().GetId().GetName() == "waits" {
			break
		}
	}
}

// TestOutage makes the database unavailable for longer than watches wait.
func TestOutage(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	proxy := faultproxy.New(t, server.Addr)
	b := fixture.Open(t, server.At(t, proxy.Addr()).StoreURL(t, "outage=300ms"))
	w := fixture.WatchAll(t, b)
	endOfSnapshot(t, w)
	proxy.Refuse()
	_, err := w.Next(fixture.Context(t))
	if !errors.Is(err, storage.ErrWatchClosed) {
		t.Fatalf("after the outage: %v", err)
	}
	proxy.Resume()
	w = fixture.WatchAll(t, b)
	endOfSnapshot(t, w)
	expect(t, "a new watch", w, fixture.Write(t, b, fixture.Resource("one", "v")))
}
