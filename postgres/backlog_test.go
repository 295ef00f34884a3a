//go:build integration

package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestBacklog commits more changes at once than a poll reads, while a transaction stays open. The changes arrive in order and once:
// at current watches, at lagging ones, and at watches from a cursor in between.
func TestBacklog(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	b, other := fixture.Open(t, storeURL), fixture.Open(t, storeURL)
	live, behind := fixture.WatchAll(t, b), fixture.WatchAll(t, other)
	endOfSnapshot(t, live)
	endOfSnapshot(t, behind)
	start := live.Cursor()

	conn := server.Connect(t)
	held, err := server.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	writeBySQL(t, held, schema, fixture.Resource("held", "v"))
	// All changes are of one resource, so they have one order. Watches read only the log.
	const total = 12000
	stored := fixture.Write(t, b, fixture.Resource("one", "0"))
	fill := fmt.Sprintf(`insert into %[1]s (revision, place, more, op, key, version, token, data, created, writes)
		select nextval('%[2]s'), 0, false, 1, key, decode(lpad(to_hex(n), 32, '0'), 'hex'), decode(lpad(to_hex(n), 32, '0'), 'hex'), data, 2, n + 1 from %[3]s, generate_series(1, %[4]d) n`,
		pgx.Identifier{schema, "changes"}.Sanitize(), pgx.Identifier{schema, "changes_seq"}.Sanitize(),
		pgx.Identifier{schema, "resources"}.Sanitize(), total)
	many, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	noteBySQL(t, many, schema)
	if _, err := many.Exec(ctx, fill); err != nil {
		t.Fatal(err)
	}
	if err := many.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	last := fixture.Write(t, b, stored)
	if err := held.Commit(ctx); err != nil {
		t.Fatal(err)
	}

	var cursors []string
	follow := func(who string, w storage.Watch, from int, keep bool) {
		t.Helper()
		versions := map[string]bool{}
		heldSeen := false
		for i := from; ; {
			res := fixture.Next(t, w).GetUpsert().GetResource()
			if res.GetId().GetName() == "held" {
				if heldSeen {
					t.Fatalf("%s: the held transaction's change was repeated", who)
				}
				heldSeen = true
				continue
			}
			if versions[res.GetVersion()] {
				t.Fatalf("%s: version %s was repeated", who, res.GetVersion())
			}
			versions[res.GetVersion()] = true
			if res.GetVersion() == last.Version {
				if i != total+1 {
					t.Fatalf("%s: the last one arrived after %d of %d", who, i, total+1)
				}
				break
			}
			i++
			if keep && i%5000 == 0 {
				cursors = append(cursors, w.Cursor())
			}
		}
	}
	follow("live watch", live, 0, true)
	follow("watch that has fallen behind", behind, 0, false)
	follow("watch from the start", resume(t, other, start), 0, true)
	for i, cursor := range cursors {
		follow(fmt.Sprintf("watch from cursor %d", i), resume(t, b, cursor), (i%(len(cursors)/2)+1)*5000, false)
	}
}
