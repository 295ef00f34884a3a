//go:build integration

package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestForeignNotes lets a role without rights on the store take the lock of the next note exclusively, so that no writer gets a number. The
// errors of writers name its session. Writers that wait do not occupy the connections, and continue when the lock is released.
func TestForeignNotes(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	b := fixture.Open(t, server.StoreURLIn(t, schema, "pool_max_conns=2"))
	stored := map[string]string{}
	for _, when := range []string{"blocked ", "released "} {
		for _, name := range []string{"update", "delete", "commit"} {
			stored[when+name] = fixture.Write(t, b, fixture.Resource(when+name, "")).Version
		}
	}
	table := pgx.Identifier{schema, "changes"}.Sanitize()
	var log, last int64
	admin := server.Connect(t)
	err := admin.QueryRow(ctx, "select '"+table+"'::regclass::oid::bigint & 2147483647, last_value & 2147483647 from "+pgx.Identifier{schema, "changes_seq"}.Sanitize()).Scan(&log, &last)
	if err != nil {
		t.Fatal(err)
	}
	foreigner, role := server.Role(t)
	conn := foreigner.Connect(t)
	if _, err := conn.Exec(ctx, "select pg_advisory_lock($1::int, $2::int)", log, last); err != nil {
		t.Fatal(err)
	}
	transactor, _ := storage.As[storage.Transactor](b)
	write := func(name string) *resourcepb.Resource {
		res := fixture.Resource(name, "v")
		res.Version = stored[name]
		return res
	}
	writers := map[string]func(ctx context.Context, when string) error{
		"create": func(ctx context.Context, when string) error {
			_, err := b.WriteCAS(ctx, write(when+"create"))
			return err
		},
		"update": func(ctx context.Context, when string) error {
			_, err := b.WriteCAS(ctx, write(when+"update"))
			return err
		},
		"delete": func(ctx context.Context, when string) error {
			return b.DeleteCAS(ctx, fixture.Resource(when+"delete", "").Id, stored[when+"delete"])
		},
		"commit": func(ctx context.Context, when string) error {
			_, err := transactor.Commit(ctx, []storage.Op{{Write: write(when + "commit")}, {Write: write(when + "another")}})
			return err
		},
	}
	type result struct {
		name string
		err  error
	}
	results := make(chan result)
	run := func(ctx context.Context, when string) {
		for name, write := range writers {
			go func() { results <- result{name, write(ctx, when)} }()
		}
	}
	withdrawn, withdraw := context.WithCancel(ctx)
	run(withdrawn, "blocked ")
	attempts := 0
	waiting := false
	fixture.Eventually(t, "writers to wait for the lock repeatedly", func() bool {
		before := waiting
		if err := admin.QueryRow(ctx, "select exists (select from pg_locks where not granted and classid::bigint = $1)", log).Scan(&waiting); err != nil {
			t.Fatal(err)
		}
		if before && !waiting {
			attempts++
		}
		return attempts == 4
	})
	for range 3 { // the calls share two connections
		if _, err := b.Read(ctx, storage.StrongConsistency, fixture.Resource("blocked update", "").Id); err != nil {
			t.Errorf("read beside blocked writers: %v", err)
			break
		}
	}
	fixture.Eventually(t, "the session to be found", func() bool { return postgres.PinBlocker(b) })
	withdraw()
	text := fmt.Sprintf("server process %d of role %q", conn.PgConn().PID(), role)
	for range writers {
		if r := <-results; !errors.Is(r.err, context.Canceled) || !strings.Contains(r.err.Error(), text) {
			t.Errorf("%s: %v, expected the end of the context, and %s", r.name, r.err, text)
		}
	}
	run(ctx, "released ")
	if _, err := conn.Exec(ctx, "select pg_advisory_unlock($1::int, $2::int)", log, last); err != nil {
		t.Fatal(err)
	}
	for range writers {
		if r := <-results; r.err != nil {
			t.Errorf("%s after the lock was released: %v", r.name, r.err)
		}
	}
}
