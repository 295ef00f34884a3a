//go:build integration

package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestLostAhead makes snapshots contain a change above one that is not final yet, and then replaces the database by an older copy,
// like a fail-over that loses commits. The copy contains everything that was final, but not the change ahead, and assigns its
// number again. A watch or a cursor must not mistake the new change for the lost one and skip it.
func TestLostAhead(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	database := server.Database(t)
	const schema = "store" // dropped with the database
	name := strings.TrimPrefix(parseURL(t, database.URL).Path, "/")
	admin := server.Connect(t)
	alone := func(statements ...string) {
		t.Helper()
		statements = append([]string{
			"alter database " + name + " with allow_connections false",
			// Terminate the stopped writer after the sessions that would see its end, and before the gate.
			"select pg_terminate_backend(pid, 10000) from (select pid from pg_stat_activity where datname = '" + name +
				"' order by state = 'idle in transaction', coalesce(wait_event, '') = 'advisory' offset 0) as sessions",
		}, statements...)
		for _, sql := range append(statements, "alter database "+name+" with allow_connections true") {
			if _, err := admin.Exec(ctx, sql); err != nil {
				t.Fatalf("%s: %v", sql, err)
			}
		}
	}
	other := fixture.Open(t, database.StoreURLIn(t, schema))
	one := fixture.Write(t, other, fixture.Resource("one", "v"))
	alone("create database " + name + "_copy template " + name)
	t.Cleanup(func() { _, _ = admin.Exec(fixture.Context(t), "drop database if exists "+name+"_lost with (force)") })

	g := newGateIn(t, database, schema, logged)
	proxy := faultproxy.New(t, database.Addr)
	b := fixture.Open(t, database.At(t, proxy.Addr()).StoreURLIn(t, schema, "application_name="+g.application))
	g.close()
	stopped := make(chan error, 1)
	go func() { _, err := b.WriteCAS(fixture.Context(t), fixture.Resource("stopped", "v")); stopped <- err }()
	g.await(1)
	ahead := fixture.Write(t, other, fixture.Resource("ahead", "v"))
	pager, _ := storage.As[storage.Pager](other)
	page, err := pager.ListPage(ctx, fixture.AllTypes, fixture.AllTenancies, "", storage.ListOptions{})
	if err != nil || len(page.Resources) != 2 || page.Resources[0].Version != ahead.Version || page.Resources[1].Version != one.Version {
		t.Fatalf("eventual page: %v, %v", page.Resources, err)
	}
	w := resume(t, other, page.Cursor)

	proxy.Refuse() // a database name that is missing for a moment would be an answer
	alone("begin; alter database " + name + " rename to " + name + "_lost; alter database " + name + "_copy rename to " + name + "; commit")
	proxy.Resume()
	if err := <-stopped; err != nil {
		t.Fatalf("the repeated write that was lost in its commit: %v", err)
	}
	fixture.Write(t, other, fixture.Resource("instead", "v"))
	fixture.Write(t, other, fixture.Resource(marker, ""))
	compacted(t, "the cursor of a listing", other, page.Cursor)
	for {
		event, err := w.Next(ctx)
		if err != nil {
			if !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
				t.Errorf("the watch: %v, expected ErrWatchClosed and ErrCompacted", err)
			}
			return
		}
		if event.GetUpsert().GetResource().GetId().GetName() == marker {
			t.Fatal("the watch continues, although a change that it has returned is lost")
		}
	}
}
