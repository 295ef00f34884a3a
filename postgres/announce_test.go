//go:build integration

package postgres

import (
	"slices"
	"testing"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestQuickUpdateIsAnnounced holds the second statement of a batch, which is for an update of a locked row, until a watch of the handle has
// returned the update that the first statement has applied.
func TestQuickUpdateIsAnnounced(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b, tr := openTraced(t, ctx, server.StoreURL(t, "listen=on", "poll=1h"))
	sql := b.handle.database.sql
	free, locked := mutationOf(t, driver.Write, createdResource(t, ctx, b, "free")), mutationOf(t, driver.Write, createdResource(t, ctx, b, "locked"))
	watch, err := b.WatchList(ctx, orderType, &resourcepb.Tenancy{}, "free")
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	for {
		event, err := watch.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if event.GetEndOfSnapshot() != nil {
			break
		}
	}
	tx, err := server.Connect(t).Begin(ctx)
	if err == nil {
		_, err = tx.Exec(ctx, sql.withNames("select from $resources where key = $1 for update"), locked.keyBytes)
	}
	if err != nil {
		t.Fatal(err)
	}
	held := func(texts []string) {
		if slices.Contains(texts, sql.updateOne) {
			tr.one.Unlock() // the feed may need statements
			defer tr.one.Lock()
			if event, err := watch.Next(ctx); err != nil || event.GetUpsert().GetResource().GetVersion() != versionText(free.token) {
				t.Errorf("the watch returned %v, %v, expected the update that was applied", event, err)
			}
		}
	}
	tr.sends.Store(&held)
	if err := b.handle.carryOut(ctx, []*mutation{free, locked}, func() {}); err != nil || !free.isApplied || locked.isApplied {
		t.Errorf("applied: %t and %t, %v", free.isApplied, locked.isApplied, err)
	}
	tr.sends.Store(nil)
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
}
