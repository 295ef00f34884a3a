//go:build integration

package postgres_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// step is the trigger that makes a gate stop a writer.
type step string

const (
	// noted is after the note and before the number, in the statement for a single deletion.
	noted step = `create trigger gate before delete on $resources for each row execute function $gate()`
	// drawn is after the number and before the row in the log.
	drawn step = `create trigger gate before insert on $changes for each row execute function $gate()`
	// logged is after the row in the log and before the commit.
	logged step = `create constraint trigger gate after insert on $changes deferrable initially deferred for each row execute function $gate()`
)

// gate stops a store's writers at one step of their statement. It stops handles opened by its URL while it is closed; other handles
// pass.
type gate struct {
	t           testing.TB
	server      *env.PostgresServer
	schema, url string
	resources   string // the table, quoted
	application string
	key         int32
	conn        *pgx.Conn
	held        pgx.Tx // holds the lock that the trigger acquires; nil while the gate is open
}

func newGate(t testing.TB, server *env.PostgresServer, at step) *gate {
	t.Helper()
	return newGateIn(t, server, server.Schema(t), at)
}

func newGateIn(t testing.TB, server *env.PostgresServer, schema string, at step) *gate {
	t.Helper()
	g := &gate{t: t, server: server, schema: schema, application: "gated" + unique(), key: rand.Int32()}
	g.url = server.StoreURLIn(t, g.schema, "application_name="+g.application)
	fixture.Open(t, g.url) // creates the tables
	g.resources = pgx.Identifier{g.schema, "resources"}.Sanitize()
	names := strings.NewReplacer("$resources", g.resources,
		"$changes", pgx.Identifier{g.schema, "changes"}.Sanitize(), "$gate", pgx.Identifier{g.schema, "gate"}.Sanitize())
	g.conn = server.Connect(t)
	for _, sql := range []string{
		fmt.Sprintf(`create function $gate() returns trigger language plpgsql set lock_timeout = 0 as $body$
begin
    if current_setting('application_name') = '%s' then
        perform pg_advisory_xact_lock_shared(0, %d);
    end if;
    return coalesce(new, old);
end $body$`, g.application, g.key),
		string(at),
	} {
		if _, err := g.conn.Exec(fixture.Context(t), names.Replace(sql)); err != nil {
			t.Fatal(err)
		}
	}
	return g
}

func (g *gate) close() {
	g.t.Helper()
	tx, err := g.server.Connect(g.t).Begin(fixture.Context(g.t))
	if err == nil {
		_, err = tx.Exec(fixture.Context(g.t), "select pg_advisory_xact_lock(0, $1)", g.key)
	}
	if err != nil {
		g.t.Fatal(err)
	}
	g.held = tx
	g.t.Cleanup(g.open) // before the handles that were opened earlier are closed
}

func (g *gate) open() {
	if g.held != nil {
		_ = g.held.Rollback(context.Background()) // its connection is closed in any case
		g.held = nil
	}
}

// stopped counts the writers at the gate, and those that wait for a change of another session.
func (g *gate) stopped() (here, behind int) {
	g.t.Helper()
	err := g.conn.QueryRow(fixture.Context(g.t), `
select count(*) filter (where locktype = 'advisory'), count(*) filter (where locktype = 'transactionid')
from pg_locks join pg_stat_activity using (pid) where not granted and application_name = $1`, g.application).Scan(&here, &behind)
	if err != nil {
		g.t.Fatal(err)
	}
	return here, behind
}

// notes counts the notes of the gate's writers: the locks with two keys, except the gate's own.
func (g *gate) notes() (n int) {
	g.t.Helper()
	err := g.conn.QueryRow(fixture.Context(g.t), `
select count(*) from pg_locks join pg_stat_activity using (pid)
where granted and locktype = 'advisory' and objsubid = 2 and classid <> 0 and application_name = $1`, g.application).Scan(&n)
	if err != nil {
		g.t.Fatal(err)
	}
	return n
}

func (g *gate) await(writers int) {
	g.t.Helper()
	fixture.Eventually(g.t, "writers to stop at the gate", func() bool { here, _ := g.stopped(); return here >= writers })
}

// TestDeleteHoldsAbsence runs two transactions that each delete the other's creation. Both resources are absent when they start. No
// order of the two explains that both deletions find nothing, so one must be refused.
func TestDeleteHoldsAbsence(t *testing.T) {
	t.Parallel()
	g := newGate(t, env.Postgres(t), drawn)
	handles := []storage.Backend{fixture.Open(t, g.url), fixture.Open(t, g.url)}
	names := []string{"one", "other"}
	errs := make(chan error, 2)
	commit := func(i int) {
		transactor, _ := storage.As[storage.Transactor](handles[i])
		_, err := transactor.Commit(fixture.Context(t), []storage.Op{
			{Delete: fixture.Resource(names[i], "").Id, Version: "some"}, {Write: fixture.Resource(names[1-i], "v")},
		})
		errs <- err
	}
	g.close()
	go commit(0)
	g.await(1)
	go commit(1)
	fixture.Eventually(t, "the other transaction to block", func() bool {
		here, behind := g.stopped()
		return here == 2 || behind > 0
	})

	g.open()
	first, second := <-errs, <-errs
	if first != nil {
		first, second = second, first
	}
	if first != nil || !isCASFailure(second) {
		t.Errorf("the transactions ended with %v and %v, expected that one succeeds and the other finds its creation", first, second)
	}
}
