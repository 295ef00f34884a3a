//go:build integration

package postgres_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestOwnChangesKeepTheOrder changes keys alternately through a handle without notifications and through another handle. The first
// handle could publish its own writes at once, but not before the versions that they replace.
func TestOwnChangesKeepTheOrder(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	deaf := fixture.Open(t, server.StoreURLIn(t, schema, "listen=off", "poll=1h"))
	other := fixture.Open(t, server.StoreURLIn(t, schema))
	replace := func(b storage.Backend, old *resourcepb.Resource) *resourcepb.Resource {
		changed := fixture.Resource(old.Id.Name, "replaced "+old.Version)
		changed.Version = old.Version
		return fixture.Write(t, b, changed)
	}
	first := fixture.Write(t, other, fixture.Resource("first", "v"))
	w := fixture.WatchAll(t, deaf)
	expect(t, "snapshot", w, first)
	endOfSnapshot(t, w)

	for range 10 {
		theirs := replace(other, first)
		ours := replace(deaf, theirs)
		expect(t, "after theirs", w, theirs)
		expect(t, "after theirs", w, ours)
		again := replace(deaf, ours)
		expect(t, "after ours", w, again)
		first = again
	}

	for range 10 {
		if err := other.DeleteCAS(fixture.Context(t), first.Id, first.Version); err != nil {
			t.Fatal(err)
		}
		created := fixture.Write(t, deaf, fixture.Resource("first", "created"))
		if event := fixture.Next(t, w); event.GetDelete().GetResource().GetVersion() != first.Version {
			t.Fatalf("event %v, expected the deletion of %s", event, first.Version)
		}
		expect(t, "after their deletion", w, created)
		first = created
	}
}

// TestOwnChangesLeaveGaps lets foreign transactions end, in either way, between the transactions of a handle whose watch returns
// its own changes immediately. It returns the others later, also from its cursor, and nothing twice.
func TestOwnChangesLeaveGaps(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	deaf := fixture.Open(t, server.StoreURLIn(t, schema, "listen=off", "poll=1h"))
	conn := server.Connect(t)
	var ours []*resourcepb.Resource
	for range 20 {
		ours = append(ours, fixture.Write(t, deaf, fixture.Resource("ours"+unique(), "v")))
	}
	w := fixture.WatchAll(t, deaf)
	for fixture.Next(t, w).GetEndOfSnapshot() == nil {
	}

	var theirs []*resourcepb.Resource
	for i := range ours {
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		res := fixture.Resource("theirs"+unique(), "v")
		writeBySQL(t, tx, schema, res)
		if i%2 == 0 {
			err = tx.Commit(ctx)
			theirs = append(theirs, res)
		} else {
			err = tx.Rollback(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		// The replaced version was returned long ago, so no poll is necessary.
		ours[i].Data.Value = []byte("again")
		expectAmong(t, w, fixture.Write(t, deaf, ours[i]), &theirs)
	}
	resumer, _ := storage.As[storage.Resumer](deaf)
	resumed, err := resumer.WatchFrom(ctx, fixture.AllTypes, fixture.AllTenancies, "", w.Cursor())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(resumed.Close)
	last := fixture.Write(t, deaf, fixture.Resource("last", "v")) // a creation needs a poll, which also returns the rest
	left := theirs
	expectAmong(t, w, last, &theirs)
	expectAmong(t, resumed, last, &left)
	if len(theirs) > 0 || len(left) > 0 {
		t.Errorf("not returned: %v, by the watch from the cursor: %v", theirs, left)
	}
}

// expectAmong reads up to an event, and removes the events before it from a list.
func expectAmong(t *testing.T, w storage.Watch, want *resourcepb.Resource, before *[]*resourcepb.Resource) {
	t.Helper()
	for {
		event := fixture.Next(t, w)
		got := event.GetUpsert().GetResource()
		if got.GetVersion() == want.Version {
			return
		}
		if len(*before) == 0 || (*before)[0].Id.Name != got.GetId().GetName() {
			t.Fatalf("event %v, expected %s or one of %v", event, want.Id.Name, *before)
		}
		*before = (*before)[1:]
	}
}
