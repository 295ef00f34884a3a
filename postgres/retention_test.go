//go:build integration

package postgres_test

import (
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/testenv"
)

// TestRetention lets changes grow old: they are deleted, a cursor from before them says so, one from after them goes on, and
// a transaction that was open all the time keeps its place.
func TestRetention(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	server := testenv.Postgres(t)
	schema := server.Schema(t)
	storeURL := server.StoreURLIn(t, schema, "retention=6s")
	b, other := open(t, storeURL), open(t, storeURL)
	w := watchAll(t, b)
	endOfSnapshot(t, w)
	oldest := w.Cursor()
	tx, err := server.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	late := resource("late", "v")
	writeBySQL(t, tx, schema, late)
	for range 50 {
		expect(t, "watch", w, write(t, other, resource("key"+unique(), "v")))
	}
	conn := server.Connect(t)
	eventually(t, "old changes to be deleted", func() bool {
		var n int
		if err := conn.QueryRow(ctx, "select count(*) from "+pgx.Identifier{schema, "changes"}.Sanitize()).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
	gone := resume(t, other, oldest)
	if _, err := gone.Next(ctx); !errors.Is(err, storage.ErrCompacted) || !errors.Is(err, storage.ErrWatchClosed) {
		t.Errorf("a watch from before: %v", err)
	}
	expect(t, "the watch", w, write(t, other, resource("between", "v")))
	resumed := resume(t, other, w.Cursor())
	stored := write(t, b, resource("fresh", "v"))
	expect(t, "a watch from after", resumed, stored)
	expect(t, "the watch", w, stored)
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	expect(t, "a watch from after", resumed, late)
	expect(t, "the watch", w, late)
	var marks int
	if err := conn.QueryRow(ctx, "select count(*) from "+pgx.Identifier{schema, "marks"}.Sanitize()).Scan(&marks); err != nil {
		t.Fatal(err)
	}
	if marks > 60 {
		t.Errorf("%d marks are kept", marks)
	}
}
