//go:build integration

package postgres_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestStatementTimeout uses a store with a short timeout of statements, which cancels some of them on a busy machine.
func TestStatementTimeout(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	fixture.Open(t, server.StoreURLIn(t, schema)) // creates the store
	useEverything(t, fixture.Open(t, server.StoreURLIn(t, schema, "statement_timeout=60ms")))
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
	for range callers * each {
		fixture.Next(t, w)
	}
	calls.Wait()
}
