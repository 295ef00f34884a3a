//go:build integration

package postgres_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestFenceDuringABackup closes and opens a store during a backup, which locks each table for its whole duration (like pg_dump).
// Nothing waits for the backup.
func TestFenceDuringABackup(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	b := fixture.Open(t, server.StoreURLIn(t, schema, "timeout=10s"))
	fence, ok := storage.As[driver.Mover](b)
	if !ok {
		t.Fatal("the backend cannot be closed for writing")
	}
	res := fixture.Write(t, b, fixture.Resource("a", "1"))
	ctx := fixture.Context(t)
	backup, err := server.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Exec(ctx, "lock table "+pgx.Identifier{schema, "resources"}.Sanitize()+" in access share mode"); err != nil {
		t.Fatal(err)
	}
	refused := func(when string) {
		t.Helper()
		if _, err := b.WriteCAS(ctx, res); !errors.Is(err, storage.ErrFenced) {
			t.Errorf("%s: got %v, expected ErrFenced", when, err)
		}
	}
	for round := range 3 {
		target := fmt.Sprintf("mem://%d", round)
		if err := fence.SetFence(ctx, &target); err != nil {
			t.Fatalf("closing, round %d: %v", round, err)
		}
		refused("closed")
		if err := fence.SetFence(ctx, &target); err != nil {
			t.Fatalf("closing again, round %d: %v", round, err)
		}
		refused("closed twice")
		if err := fence.SetFence(ctx, nil); err != nil {
			t.Fatalf("opening, round %d: %v", round, err)
		}
		if state, err := fence.Fence(ctx); err != nil || state.Closed {
			t.Errorf("opened: %+v, %v", state, err)
		}
		res = fixture.Write(t, b, res)
	}
	if err := backup.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	last := "mem://last"
	if err := fence.SetFence(ctx, &last); err != nil {
		t.Fatal(err)
	}
	refused("closed after the backup")
	if err := fence.SetFence(ctx, nil); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, b, res)
	var left int
	if err := server.Connect(t).QueryRow(ctx, "select count(*) from pg_trigger where tgrelid = $1::regclass and not tgisinternal",
		pgx.Identifier{schema, "resources"}.Sanitize()).Scan(&left); err != nil || left != 0 {
		t.Errorf("%d triggers remain, %v", left, err)
	}
}

// TestFenceAfterABackup closes a store again that was opened during a backup, while programs write to it and one transaction is in
// flight. Every successful write was made before the closing.
func TestFenceAfterABackup(t *testing.T) {
	t.Parallel()
	server := env.Postgres(t)
	schema := server.Schema(t)
	url := server.StoreURLIn(t, schema)
	b := fixture.Open(t, url)
	fence, _ := storage.As[driver.Mover](b)
	there := "mem://there"
	ctx := fixture.Context(t)
	table := pgx.Identifier{schema, "resources"}.Sanitize()
	backup, err := server.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := backup.Exec(ctx, "lock table "+table+" in access share mode"); err != nil {
		t.Fatal(err)
	}
	for round := range 5 {
		if err := fence.SetFence(ctx, &there); err != nil {
			t.Fatal(err)
		}
		if err := fence.SetFence(ctx, nil); err != nil {
			t.Fatal(err)
		}
		type result struct {
			res *resourcepb.Resource
			err error
		}
		results := make(chan result, 4)
		for i := range cap(results) {
			writer := fixture.Open(t, url)
			res := fixture.Write(t, writer, fixture.Resource(fmt.Sprintf("w%d-%d", round, i), ""))
			go func() {
				for {
					next, err := writer.WriteCAS(ctx, res)
					if err != nil {
						results <- result{res, err}
						return
					}
					res = next
				}
			}()
		}
		stranger, err := server.Connect(t).Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		writeBySQL(t, stranger, schema, fixture.Resource(fmt.Sprintf("stranger%d", round), ""))
		closed := make(chan error, 1)
		go func() { closed <- fence.SetFence(ctx, &there) }()
		looking := server.Connect(t)
		fixture.Eventually(t, "the fence to wait for the transaction", func() bool {
			var n int
			if err := looking.QueryRow(ctx, `select count(*) from pg_locks where relation = $1::regclass and not granted and mode = 'ShareRowExclusiveLock'`, table).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n > 0
		})

		if err := stranger.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
		list, err := b.List(ctx, storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
		if err != nil {
			t.Fatal(err)
		}
		versions := map[string]string{}
		for _, res := range list {
			versions[res.Id.Name] = res.Version
		}
		for range cap(results) {
			r := <-results
			if !errors.Is(r.err, storage.ErrFenced) {
				t.Errorf("writing: %v", r.err)
			}
			if got := versions[r.res.Id.Name]; got != r.res.Version {
				t.Errorf("%s: acknowledged at %q, %q when the store was closed", r.res.Id.Name, r.res.Version, got)
			}
		}
		if err := fence.SetFence(ctx, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := backup.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
}
