//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestCancelledWaitForTheStandby disconnects the synchronous standby, and an administrator repeatedly cancels every statement that
// waits for it: statements that write, and statements that resolve an outcome. Nothing may be acknowledged.
func TestCancelledWaitForTheStandby(t *testing.T) {
	t.Parallel()
	cancelWaits(t, env.StartPostgres(t))
}

// TestCancelledWaitWithoutWarnings is the same test on a server whose sessions do not send the warning of a cancelled wait.
func TestCancelledWaitWithoutWarnings(t *testing.T) {
	t.Parallel()
	cancelWaits(t, env.StartPostgres(t, "-c", "client_min_messages=error"))
}

// TestCancelledWaitBehindPooler is the same test behind a pooler.
func TestCancelledWaitBehindPooler(t *testing.T) {
	t.Parallel()
	server := env.StartPostgres(t, "-c", "client_min_messages=error")
	pooled := *server
	pooled.URL = env.StartPgBouncer(t, server).URL
	cancelWaits(t, server, &pooled)
}

// cancelWaits runs the test on a server, whose store is opened by another URL if there is one.
func cancelWaits(t *testing.T, server *env.PostgresServer, open ...*env.PostgresServer) {
	storeURL := func(schema string) string { // the schemas are dropped with the server
		if len(open) > 0 {
			return open[0].StoreURLIn(t, schema, "listen=off")
		}
		return server.StoreURLIn(t, schema)
	}
	b := fixture.Open(t, storeURL("store"))
	old := map[string]*resourcepb.Resource{}
	for _, name := range []string{"update", "commit", "delete"} {
		old[name] = fixture.Write(t, b, fixture.Resource(name, "old"))
	}
	past, ok := storage.As[history.Historian](b)
	if !ok {
		t.Fatal("the backend has no history")
	}
	_, newest, err := past.Revisions(fixture.Context(t))
	if err == nil {
		err = past.Compact(fixture.Context(t), newest-1)
	}
	if err != nil {
		t.Fatal(err)
	}
	admin := server.Connect(t)
	for _, sql := range []string{"alter system set synchronous_standby_names = 'away'", "select pg_reload_conf()"} {
		if _, err := admin.Exec(fixture.Context(t), sql); err != nil {
			t.Fatal(err)
		}
	}
	fixture.Eventually(t, "the server to wait for its standby", func() bool {
		var names string
		if err := server.Connect(t).QueryRow(fixture.Context(t), "show synchronous_standby_names").Scan(&names); err != nil {
			t.Fatal(err)
		}
		return names != ""
	})

	var group sync.WaitGroup
	stop := make(chan struct{})
	cancelled := 0
	group.Go(func() {
		for {
			var n int
			err := admin.QueryRow(context.Background(),
				"select count(*) from (select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep' offset 0) as cancelled").Scan(&n)
			if err != nil {
				t.Error(err)
				return
			}
			cancelled += n
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	journal, ok := storage.As[driver.Mover](b)
	if !ok {
		t.Fatal("the backend keeps no journal")
	}
	all := mutations(b, old)
	all["journal"] = func(ctx context.Context) (string, error) {
		return journal.WriteNote(ctx, "note", []byte("value"), "")
	}
	for name, revision := range map[string]int64{"compaction": newest, "compaction of compacted history": newest - 2} {
		all[name] = func(ctx context.Context) (string, error) { return "", past.Compact(ctx, revision) }
	}
	all["opening of a new store"] = func(ctx context.Context) (string, error) {
		opened, err := storage.Open(ctx, storeURL("opened"))
		if err == nil {
			err = opened.Close()
		}
		return "", err
	}
	var calls sync.WaitGroup
	for name, call := range all {
		calls.Go(func() {
			version, err := call(fixture.CallTimeout(context.Background(), t, 10*time.Second))
			if !isInconsistent(err) {
				t.Errorf("%s: %q, %v; no standby has it, expected ErrInconsistent", name, version, err)
			}
		})
	}
	upgraded := parseURL(t, storeURL("upgraded"))
	for _, attempt := range []string{"creation of a store", "repeated creation of a store"} {
		if from, err := postgres.UpgradeSchema(fixture.Context(t), upgraded); !errors.Is(err, storage.ErrInconsistent) {
			t.Errorf("%s: from version %d, %v; no standby has it, expected ErrInconsistent", attempt, from, err)
		}
	}
	calls.Wait()
	close(stop)
	group.Wait()
	if cancelled == 0 {
		t.Error("nothing waited for the standby")
	}
}
