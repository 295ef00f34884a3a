//go:build integration

package postgres_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/postgres"
)

// openForgetful opens a store by a handle with this retention.
func openForgetful(t *testing.T, storeURL string, retention time.Duration) *postgres.Backend {
	t.Helper()
	b, err := postgres.OpenForgetful(fixture.Context(t), storeURL, retention)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// TestRetention lets the changes of one resource expire: all but the last one are deleted, a cursor from before them fails with
// ErrCompacted, and one from after them continues.
func TestRetention(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema)
	const retention = 20 * time.Second // the watch must not be that late
	b, other := openForgetful(t, storeURL, retention), openForgetful(t, storeURL, retention)
	w := fixture.WatchAll(t, b)
	endOfSnapshot(t, w)
	oldest := w.Cursor()
	kept := fixture.Resource("key"+unique(), "v")
	for range 50 {
		kept = fixture.Write(t, other, kept)
		expect(t, "watch", w, kept)
	}
	conn := server.Connect(t)
	fixture.Eventually(t, "old changes to be deleted", func() bool {
		var n int
		if err := conn.QueryRow(ctx, "select count(*) from "+pgx.Identifier{schema, "changes"}.Sanitize()).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})

	gone := resume(t, other, oldest)
	if _, err := gone.Next(ctx); !errors.Is(err, storage.ErrCompacted) || !errors.Is(err, storage.ErrWatchClosed) {
		t.Errorf("a watch from before: %v", err)
	}
	expect(t, "the watch", w, fixture.Write(t, other, fixture.Resource("between", "v")))
	resumed := resume(t, other, w.Cursor())
	stored := fixture.Write(t, b, fixture.Resource("fresh", "v"))
	expect(t, "a watch from after", resumed, stored)
	expect(t, "the watch", w, stored)
	var marks int
	if err := conn.QueryRow(ctx, "select count(*) from "+pgx.Identifier{schema, "marks"}.Sanitize()).Scan(&marks); err != nil {
		t.Fatal(err)
	}
	if marks > 60 {
		t.Errorf("%d marks remain", marks)
	}
}

// TestRetentionAfterABurst leaves a store idle after a burst of changes. One step deletes only a part of them. All later marks have
// the number of the last change, and none of them must end the deletion.
func TestRetentionAfterABurst(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	b := openForgetful(t, server.StoreURLIn(t, schema), 4*time.Second)
	fixture.Write(t, b, fixture.Resource("first", "v"))
	conn := server.Connect(t)
	quoted := func(name string) string { return pgx.Identifier{schema, name}.Sanitize() }
	const steps = 30
	if _, err := conn.Exec(ctx, `
insert into `+quoted("changes")+` (revision, place, more, op, key, version, token, data, created, writes, previous, previous_place)
select next, 0, false, 1, 'k', 'v', 'a token of a change', '', 3, next - 2, nullif(next - 1, 2), 0
from (select nextval('`+quoted("changes_seq")+`') as next from generate_series(1, $1)) as numbered`, steps*5000); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "the deletion of all but the last change and the stored resources", func() bool {
		var n int
		if err := conn.QueryRow(ctx, "select count(*) from "+quoted("changes")).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 2
	})

}
