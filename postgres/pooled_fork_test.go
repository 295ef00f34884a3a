//go:build integration

package postgres_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestLostCommitsBehindPooler replaces the database behind a pooler by an older copy, like a fail-over that loses commits. The
// program's sessions with the pooler stay alive. Other sessions draw the lost changes' numbers again, and the handle's own next
// change has the number after the last one that its watch returned. The watch must report that history has been replaced.
func TestLostCommitsBehindPooler(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.StartPostgres(t)
	pooler := env.StartPgBouncer(t, server)
	database := server.Database(t)
	path := parseURL(t, database.URL).Path
	name := strings.TrimPrefix(path, "/")
	pooled := parseURL(t, pooler.URL)
	pooled.Path = path
	pooled.RawQuery += "&" + url.Values{"schema": {"store"}, "listen": {"off"}, "poll": {"1h"}, "pool_max_conns": {"1"}}.Encode()
	admin := server.Connect(t)
	// The feed may reconnect between the two.
	alone := func(sql string) {
		t.Helper()
		fixture.Eventually(t, "nobody else to use the database", func() bool {
			if _, err := admin.Exec(ctx, "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '"+name+"'"); err != nil {
				t.Fatal(err)
			}
			_, err := admin.Exec(ctx, sql)
			return err == nil
		})
	}

	b := fixture.Open(t, pooled.String())
	kept, lost := fixture.Write(t, b, fixture.Resource("kept", "v")), fixture.Write(t, b, fixture.Resource("lost", "v"))
	w := fixture.WatchAll(t, b)
	expect(t, "snapshot", w, kept)
	expect(t, "snapshot", w, lost)
	endOfSnapshot(t, w)
	alone("create database copy template " + name)

	for range 3 {
		lost = fixture.Write(t, b, lost)
		expect(t, "watch", w, lost)
	}
	alone("alter database " + name + " rename to lost")
	if _, err := admin.Exec(ctx, "alter database copy rename to "+name); err != nil {
		t.Fatal(err)
	}
	other := fixture.Open(t, database.StoreURLIn(t, "store"))
	for _, name := range []string{"a", "b", "c"} {
		fixture.Write(t, other, fixture.Resource(name, "v"))
	}
	fixture.Write(t, b, kept)
	if event, err := w.Next(ctx); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
		t.Errorf("event %v, %v; expected ErrWatchClosed for replaced history", event, err)
	}
}
