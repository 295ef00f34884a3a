//go:build integration

package postgres_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestLostBeforeTheFeedSawIt starts a watch whose snapshot contains a change that the feed has not reached yet, and replaces the
// database by an older copy, like a fail-over that loses commits. The feed finds everything that it has published. The next change
// gets the lost one's number, and the watch would take it for the change that it has already returned. The same holds for a resumed
// watch that read that far in history.
func TestLostBeforeTheFeedSawIt(t *testing.T) {
	t.Parallel()
	for _, begin := range []string{"listed", "resumed"} {
		t.Run(begin, func(t *testing.T) {
			t.Parallel()
			ctx := fixture.Context(t)
			server := env.Postgres(t)
			database := server.Database(t)
			const schema = "store" // dropped with the database
			name := strings.TrimPrefix(parseURL(t, database.URL).Path, "/")
			admin := server.Connect(t)
			alone := func(statements ...string) {
				t.Helper()
				terminate := "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '" + name + "'"
				statements = append([]string{"alter database " + name + " with allow_connections false", terminate}, statements...)
				for _, sql := range append(statements, "alter database "+name+" with allow_connections true") {
					_, err := admin.Exec(ctx, sql)
					for isUsedByOthers(err) { // by a connection that was being opened
						if _, err = admin.Exec(ctx, terminate); err == nil {
							_, err = admin.Exec(ctx, sql)
						}
					}
					if err != nil {
						t.Fatalf("%s: %v", sql, err)
					}
				}
			}
			other := fixture.Open(t, database.StoreURLIn(t, schema))
			one := fixture.Write(t, other, fixture.Resource("one", "v"))
			b := fixture.Open(t, database.StoreURLIn(t, schema, "listen=off", "poll=1h"))
			first := fixture.WatchAll(t, b) // the feed starts
			expect(t, "snapshot", first, one)
			endOfSnapshot(t, first)
			alone("create database " + name + "_copy template " + name)
			t.Cleanup(func() { _, _ = admin.Exec(fixture.Context(t), "drop database if exists "+name+"_lost with (force)") })

			lost := fixture.Write(t, other, fixture.Resource("lost", "v"))
			var w storage.Watch
			if begin == "listed" {
				w = fixture.WatchAll(t, b)
				expect(t, "snapshot", w, lost)
				expect(t, "snapshot", w, one)
				endOfSnapshot(t, w)
			} else {
				resumer, _ := storage.As[storage.Resumer](b)
				var err error
				if w, err = resumer.WatchFrom(ctx, fixture.AllTypes, fixture.AllTenancies, "", first.Cursor()); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(w.Close)
				expect(t, "resumed watch", w, lost)
			}
			alone("alter database " + name + " rename to " + name + "_lost; alter database " + name + "_copy rename to " + name) // one transaction
			fixture.Write(t, other, fixture.Resource("instead", "v"))
			fixture.Write(t, other, fixture.Resource(marker, ""))
			if err := w.(storage.Bookmarker).Bookmark(ctx); err != nil { // makes the feed poll
				t.Fatal(err)
			}
			for {
				event, err := w.Next(ctx)
				if err != nil {
					if !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
						t.Errorf("the watch: %v, expected ErrWatchClosed and ErrCompacted", err)
					}
					return
				}
				if name := event.GetUpsert().GetResource().GetId().GetName(); name == "instead" || name == marker {
					t.Fatalf("the watch goes on with %q, although a change that it has returned is lost", name)
				}
			}
		})
	}
}

// isUsedByOthers reports whether a statement failed because other connections use its database.
func isUsedByOthers(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "55006"
}
