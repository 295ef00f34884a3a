//go:build integration

package postgres_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestStatementTimeout uses a store with a short timeout of statements. While another session locks the table, the server cancels each attempt of a
// write, and the handle repeats it until the lock is gone.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	fixture.Open(t, server.StoreURLIn(t, schema)) // creates the store
	b := fixture.Open(t, server.StoreURLIn(t, schema, "statement_timeout=60ms", "application_name="+schema))
	useEverything(t, b)
	tx, err := server.Connect(t).Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, "lock table "+pgx.Identifier{schema, "resources"}.Sanitize()+" in access exclusive mode")
	}
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan error, 1)
	go func() {
		_, err := b.WriteCAS(ctx, fixture.Resource("late", "v"))
		result <- err
	}()
	watcher, starts := server.Connect(t), map[time.Time]bool{}
	fixture.Eventually(t, "the third attempt", func() bool {
		var start *time.Time
		err := watcher.QueryRow(ctx, "select max(query_start) from pg_stat_activity where application_name = $1 and wait_event_type = 'Lock'", schema).Scan(&start)
		if err == nil && start != nil {
			starts[*start] = true
		}
		return len(starts) > 2
	})
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := <-result; err != nil {
		t.Errorf("the write failed: %v", err)
	}
}

// TestTooFewConnections writes through a handle whose role may open fewer connections than the handle wants. The writes share the
// connections that there are, and the events arrive, although the handle cannot listen all the time.
func TestTooFewConnections(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	owner := env.Postgres(t)
	database := owner.Database(t)
	server, role := database.Role(t)
	conn := database.Connect(t)
	for _, sql := range []string{"grant create on database " + conn.Config().Database + " to " + role, "alter role " + role + " connection limit 3"} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	b := fixture.Open(t, server.StoreURLIn(t, "store", "poll=100ms"))
	w := fixture.WatchChanges(t, b)
	const callers, each = 8, 5
	var calls sync.WaitGroup
	for caller := range callers {
		calls.Go(func() {
			for i := range each {
				if _, err := b.WriteCAS(ctx, fixture.Resource(fmt.Sprintf("%d-%d", caller, i), "v")); err != nil {
					t.Error(err)
				}
				if _, err := b.List(ctx, storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, fmt.Sprint(caller)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	calls.Wait()
	if t.Failed() {
		return // the events of failed writes never come
	}
	for range callers * each {
		fixture.Next(t, w)
	}
}
