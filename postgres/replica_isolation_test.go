//go:build integration

package postgres_test

import (
	"net/url"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestReplicaIsolation makes transactions with a single snapshot the default. A replica's answer is as old as its snapshot: the
// position that it reports afterwards, in the same transaction, proves nothing about the answer.
//
// The function that reports the position is replaced by one that waits first, so that the standby can catch up in between.
func TestReplicaIsolation(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	pair := env.StartPostgresPair(t)
	const schema = "store"
	b := fixture.Open(t, pair.Primary.StoreURLIn(t, schema, "replica="+url.QueryEscape(pair.Standby.URL+"&application_name=reader")))
	primary, standby := pair.Primary.Connect(t), pair.Standby.Connect(t)
	for _, sql := range []string{
		"create schema shim",
		`create function shim.pg_last_wal_replay_lsn() returns pg_lsn language plpgsql as $$
begin
    -- The lock is a gate for the test. Functions see the transaction's snapshot, but the position is the current one.
    perform pg_catalog.pg_advisory_lock_shared(77); perform pg_catalog.pg_advisory_unlock_shared(77);
    return pg_catalog.pg_last_wal_replay_lsn();
end $$`,
		"alter database ashlar set search_path = shim, pg_catalog, public",
		"alter database ashlar set default_transaction_isolation = 'repeatable read'",
	} {
		if _, err := primary.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	first := fixture.Write(t, b, fixture.Resource("one", "first"))
	pair.CatchUp(t)
	gate := func(sql string) {
		t.Helper()
		if _, err := standby.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	gate("select pg_wal_replay_pause()")
	first.Data.Value = []byte("second")
	second := fixture.Write(t, b, first)
	gate("select pg_advisory_lock(77)")

	type answer struct {
		res *resourcepb.Resource
		err error
	}
	answered := make(chan answer, 1)
	go func() {
		res, err := b.Read(ctx, storage.EventualConsistency, second.Id)
		answered <- answer{res, err}
	}()
	var got *answer
	fixture.Eventually(t, "a query on the replica, or an answer of the primary", func() bool {
		select {
		case a := <-answered:
			got = &a
			return true
		default:
		}
		var asked bool
		if err := standby.QueryRow(ctx, "select exists (select from pg_stat_activity where application_name = 'reader' and wait_event = 'advisory')").Scan(&asked); err != nil {
			t.Fatal(err)
		}
		return asked
	})

	gate("select pg_wal_replay_resume()")
	pair.CatchUp(t)
	gate("select pg_advisory_unlock(77)")
	if got == nil {
		a := <-answered
		got = &a
	}
	if got.err != nil || got.res.Version != second.Version {
		t.Errorf("a read after an own write at %s: %v, %v", second.Version, got.res, got.err)
	}
}
