//go:build integration

package postgres_test

import (
	"context"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestSequenceBehindTheLog resets the sequence of changes, as after the promotion of a logical replica, which has the tables and not
// the sequence. No watch would return the next writes, so the store is refused, by an open handle too, until the sequence is repaired.
func TestSequenceBehindTheLog(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	b := fixture.Open(t, storeURL)
	res := fixture.Write(t, b, fixture.Resource("one", "v"))
	for range 5 {
		res = fixture.Write(t, b, res)
	}
	conn := server.Connect(t)
	setval := func(to string) {
		t.Helper()
		name := "'" + pgx.Identifier{schema, "changes_seq"}.Sanitize() + "'"
		if _, err := conn.Exec(ctx, "select setval("+name+", "+to+")"); err != nil {
			t.Fatal(err)
		}
	}
	setval("1")
	if other, err := storage.Open(ctx, storeURL); err == nil || !strings.Contains(err.Error(), "changes_seq") {
		if err == nil {
			_ = other.Close()
		}
		t.Errorf("opened with a sequence behind the log: %v, expected an error that names it", err)
	}
	if _, err := b.WriteCAS(ctx, fixture.Resource("two", "v")); err == nil || !strings.Contains(err.Error(), "changes_seq") {
		t.Errorf("written with a sequence behind the log: %v, expected an error that names it", err)
	}
	setval("1000")
	fixture.Write(t, fixture.Open(t, storeURL), res)
	fixture.Write(t, b, fixture.Resource("two", "v"))
}

// TestSequenceRepair resets the sequence of a schema whose name needs quotes, in such a way that it would draw the last number again.
// The store is refused, and opens after the statement in the error was executed.
func TestSequenceRepair(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	conn := server.Connect(t)
	for _, is := range []string{"last_value, false", "last_value + 1, false", "1, true"} {
		schema := `It's "` + server.Schema(t) + `"`
		t.Cleanup(func() {
			if _, err := server.Connect(t).Exec(context.Background(), "drop schema if exists "+pgx.Identifier{schema}.Sanitize()+" cascade"); err != nil {
				t.Error(err)
			}
		})
		storeURL := server.StoreURL(t, "schema="+url.QueryEscape(schema))
		b := fixture.Open(t, storeURL)
		res := fixture.Write(t, b, fixture.Resource("one", "v"))
		res = fixture.Write(t, b, res)
		name := pgx.Identifier{schema, "changes_seq"}.Sanitize()
		if _, err := conn.Exec(ctx, "select setval('"+strings.ReplaceAll(name, "'", "''")+"', "+is+") from "+name); err != nil {
			t.Fatal(err)
		}
		other, err := storage.Open(ctx, storeURL)
		if err == nil {
			_ = other.Close()
			t.Errorf("opened with a sequence at %s", is)
			continue
		}
		_, repair, found := strings.Cut(err.Error(), "run select ")
		if !found {
			t.Errorf("the sequence is at %s: %v, expected a statement that repairs it", is, err)
			continue
		}
		if _, err := conn.Exec(ctx, "select "+repair); err != nil {
			t.Errorf("select %s: %v", repair, err)
			continue
		}
		b = fixture.Open(t, storeURL)
		w := fixture.WatchChanges(t, b)
		res = fixture.Write(t, b, res)
		if event := fixture.Next(t, w); event.GetUpsert().GetResource().GetVersion() != res.Version {
			t.Errorf("the sequence was at %s: event %v, expected version %s", is, event, res.Version)
		}
	}
}
