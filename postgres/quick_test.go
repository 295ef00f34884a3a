//go:build integration

package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestQuickUpdates sends updates by the quick statements, alone and among others, while something prevents each of them. It is not applied, draws
// no number, and waits for nothing. Afterwards it is applied, with the same row and the same change as by the thorough statement.
func TestQuickUpdates(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	h, conn, other := b.handle, server.Connect(t), server.Connect(t)
	exec := func(t *testing.T, on *pgx.Conn, sql string, arguments ...any) {
		t.Helper()
		if _, err := on.Exec(ctx, h.database.sql.withNames(sql), arguments...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	last := func(t *testing.T) (n int64) {
		t.Helper()
		if err := conn.QueryRow(ctx, h.database.sql.lastNumber).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, c := range map[string]struct {
		prevent func(t *testing.T, a *attempt, m *mutation)
		release func(t *testing.T)
		all     bool // it prevents all updates of the statement
	}{
		"another version": {prevent: func(_ *testing.T, _ *attempt, m *mutation) { m.expectedVersion = make([]byte, versionSize) }},
		"another uid": {prevent: func(_ *testing.T, _ *attempt, m *mutation) {
			changed := *m.Mutation
			m.Mutation, changed.Uid = &changed, "another"
		}},
		"no resource": {prevent: func(_ *testing.T, _ *attempt, m *mutation) { m.keyBytes = []byte("nothing") }},
		"a row without numbers": {prevent: func(t *testing.T, _ *attempt, m *mutation) {
			exec(t, other, "update $resources set created = null, writes = null, modified = null, modified_place = null where key = $1", m.keyBytes)
		}},
		"a locked row": {
			prevent: func(t *testing.T, _ *attempt, m *mutation) {
				exec(t, other, "begin")
				exec(t, other, "select from $resources where key = $1 for key share", m.keyBytes)
			},
			release: func(t *testing.T) { exec(t, other, "rollback") },
		},
		"a note that is not available": {
			prevent: func(t *testing.T, _ *attempt, _ *mutation) {
				exec(t, other, "begin")
				exec(t, other, "select pg_advisory_xact_lock(($changes_name::regclass::oid::bigint & 2147483647)::int, (last_value & 2147483647)::int) from $changes_seq")
			},
			release: func(t *testing.T) { exec(t, other, "rollback") }, all: true,
		},
		"the end of its time":        {prevent: func(_ *testing.T, a *attempt, _ *mutation) { a.expires = time.Now().Add(-time.Hour) }, all: true},
		"a floor of another history": {prevent: func(_ *testing.T, a *attempt, _ *mutation) { a.floor += 1000 }, all: true},
	} {
		for _, n := range []int{1, 3, -1, -3} { // negative: deletions
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				var ms []*mutation
				verb := driver.Write
				if n < 0 {
					n, verb = -n, driver.Delete
				}
				for i := range n {
					ms = append(ms, mutationOf(t, verb, createdResource(t, ctx, b, fmt.Sprint(name, verb, n, i))))
				}
				a := &attempt{expires: time.Now().Add(time.Hour), floor: last(t)}
				prevented := *ms[n-1]
				c.prevent(t, a, &prevented)
				sent := append(slices.Clone(ms[:n-1]), &prevented)
				before := last(t)
				if err := h.quickChanges(ctx, conn, a, sent); err != nil {
					t.Fatal(err)
				}
				if c.release != nil {
					c.release(t)
				}
				checkLastIsPrevented(t, sent, c.all, last(t)-before)
				switch {
				case name == "a row without numbers":
				case verb == driver.Delete:
					checkQuickDeletion(t, ctx, b, conn, ms[n-1])
				default:
					checkQuickChange(t, ctx, b, conn, ms[n-1])
				}
			})
		}
	}
}

// checkLastIsPrevented checks that a quick statement has applied all mutations but the last, or none at all, and that each one has drawn a number.
func checkLastIsPrevented(t *testing.T, ms []*mutation, all bool, drawn int64) {
	t.Helper()
	applied := int64(0)
	for i, m := range ms {
		if want := i < len(ms)-1 && !all; m.isApplied != want {
			t.Errorf("the mutation %d is applied: %t, expected %t", i, m.isApplied, want)
		}
		if m.isApplied {
			applied++
		}
	}
	if drawn != applied {
		t.Errorf("%d numbers are drawn for %d mutations", drawn, applied)
	}
}

// checkQuickChange applies an update by a quick statement, and the next one by the thorough statement. Their changes and rows must have the same form.
func checkQuickChange(t *testing.T, ctx context.Context, b *Backend, conn *pgx.Conn, quick *mutation) {
	t.Helper()
	h, a := b.handle, &attempt{expires: time.Now().Add(time.Hour)}
	if err := h.quickChanges(ctx, conn, a, []*mutation{quick}); err != nil || !quick.isApplied {
		t.Fatalf("applied: %t, %v", quick.isApplied, err)
	}
	thorough := mutationOf(t, driver.Write, &resourcepb.Resource{Id: quick.Resource.Id, Version: versionText(quick.token), Data: quick.Resource.Data})
	thorough.Uid = quick.Uid
	quickForm := changeForm(t, ctx, b, conn, quick)
	if err := h.changeOne(ctx, conn, a, thorough); err != nil || !thorough.isApplied {
		t.Fatalf("the thorough statement: applied: %t, %v", thorough.isApplied, err)
	}
	if form := changeForm(t, ctx, b, conn, thorough); form != quickForm || thorough.writes != quick.writes+1 || thorough.createRevision != quick.createRevision {
		t.Errorf("the changes %s and %s, the answers %d/%d and %d/%d", quickForm, form, quick.createRevision, quick.writes, thorough.createRevision, thorough.writes)
	}
}

// checkQuickDeletion applies a deletion by a quick statement, and one of a resource with the same past by the thorough statement. Their changes must
// have the same form.
func checkQuickDeletion(t *testing.T, ctx context.Context, b *Backend, conn *pgx.Conn, quick *mutation) {
	t.Helper()
	h, a := b.handle, &attempt{expires: time.Now().Add(time.Hour)}
	thorough := mutationOf(t, driver.Delete, createdResource(t, ctx, b, "deleted"))
	if err := h.quickChanges(ctx, conn, a, []*mutation{quick}); err != nil || !quick.isApplied {
		t.Fatalf("applied: %t, %v", quick.isApplied, err)
	}
	if err := h.changeOne(ctx, conn, a, thorough); err != nil || !thorough.isApplied {
		t.Fatalf("the thorough statement: applied: %t, %v", thorough.isApplied, err)
	}
	if quickForm, form := changeForm(t, ctx, b, conn, quick), changeForm(t, ctx, b, conn, thorough); form != quickForm || quick.writes != thorough.writes {
		t.Errorf("the changes %s and %s, after %d and %d writes", quickForm, form, quick.writes, thorough.writes)
	}
}

// changeForm describes the change of a mutation, and the row of the resource if there is one, without their numbers.
func changeForm(t *testing.T, ctx context.Context, b *Backend, conn *pgx.Conn, m *mutation) (form string) {
	t.Helper()
	err := conn.QueryRow(ctx, b.handle.database.sql.withNames(`
		select concat_ws(' ', c.op, c.place, c.more, c.token = c.version, c.token = $3, c.data = r.data, c.created = r.created, c.writes = r.writes,
			r.version = c.version, r.modified = c.revision, r.modified_place, c.created <= c.revision, c.previous = p.revision, c.previous_place = p.place,
			c.writes - p.writes, c.data = p.data, c.version = p.version, r.uid, r.group_version, r.owner is not null)
		from $changes c left join $resources r on c.key = r.key
		left join $changes p on p.key = c.key and p.revision = (select max(revision) from $changes where key = c.key and revision < c.revision)
		where c.key = $1 and c.revision = $2`), m.keyBytes, m.revision, m.token).Scan(&form)
	if err != nil {
		t.Fatal(err)
	}
	return form
}

// TestQuickStatementsLockBeforeTheyDraw replaces the sequence of the quick statements by a function that refuses to draw a number unless the
// transaction has a note and has locked the row or the key: readers rely on this order. As many must be locked or changed as numbers are drawn.
func TestQuickStatementsLockBeforeTheyDraw(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	h, conn := b.handle, server.Connect(t)
	sql := h.database.sql
	function, counter, stored := pgx.Identifier{sql.schema, "draw"}.Sanitize(), nameLiteral(sql.schema, "draws"), pgx.Identifier{sql.schema, "stored"}.Sanitize()
	_, err := conn.Exec(ctx, sql.withNames(`
		create sequence `+pgx.Identifier{sql.schema, "draws"}.Sanitize()+`;
		create sequence `+stored+`;
		create function `+function+`() returns bigint language plpgsql as $body$
		declare
			locked int;
		begin
			-- A deletion draws when its row has gone. A creation locks its key, and its attempt, instead of a row.
			select count(*) filter (where pg_current_xact_id()::xid in (xmin, xmax)) + greatest(0, (select last_value from `+stored+`) - count(*))
				into locked from $resources;
			select locked + greatest(0, count(*) - 1) into locked from pg_locks where locktype = 'advisory' and objsubid = 1 and pid = pg_backend_pid();
			if locked < nextval(`+counter+`) then
				raise exception 'a number is drawn before its row or key is locked';
			end if;
			perform from pg_locks where locktype = 'advisory' and objsubid = 2 and pid = pg_backend_pid()
				and objid::bigint <= (select last_value from $changes_seq);
			if not found then
				raise exception 'a number is drawn without a note';
			end if;
			return nextval($seq_name);
		end $body$`))
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []*string{&sql.quickOne[0], &sql.quickMany[0], &sql.quickDeletions[0], &sql.quickCreations[0]} {
		replaced := strings.ReplaceAll(*text, "nextval("+nameLiteral(sql.schema, "changes_seq")+")", function+"()")
		if replaced == *text {
			t.Fatal("the statement draws no number")
		}
		*text = replaced
	}
	for _, n := range []int{1, 5} {
		updates, deletions, creations := make([]*mutation, n), make([]*mutation, n), make([]*mutation, n)
		for i := range n {
			updates[i] = mutationOf(t, driver.Write, createdResource(t, ctx, b, fmt.Sprint("updated-", n, "-", i)))
			deletions[i] = mutationOf(t, driver.Delete, createdResource(t, ctx, b, fmt.Sprint("deleted-", n, "-", i)))
			creations[i] = mutationOf(t, driver.Write, orderResource(fmt.Sprint("created-", n, "-", i), ""))
		}
		for what, ms := range map[string][]*mutation{"updates": updates, "deletions": deletions, "creations": creations} {
			if _, err := conn.Exec(ctx, sql.withNames("select setval("+counter+", 1, false), setval("+nameLiteral(sql.schema, "stored")+", count(*)) from $resources")); err != nil {
				t.Fatal(err)
			}
			run := h.quickChanges
			if what == "creations" {
				run = h.quickCreations
			}
			if err := run(ctx, conn, &attempt{lock: 1, expires: time.Now().Add(time.Hour)}, ms); err != nil {
				t.Errorf("%d %s: %v", n, what, err)
			}
			for i, m := range ms {
				if !m.isApplied {
					t.Errorf("%s: %d of %d is not applied", what, i, n)
				}
			}
		}
	}
}

// TestFoundUpdateIsNotSentAgain loses the answer to an update. The next batch finds that it was applied, and answers its caller. From then on,
// nothing may send it or discard its result, which the caller reads.
func TestFoundUpdateIsNotSentAgain(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	h, conn := b.handle, server.Connect(t)
	lost := mutationOf(t, driver.Write, createdResource(t, ctx, b, "lost"))
	a := &attempt{expires: time.Now().Add(time.Hour)}
	if err := h.quickChanges(ctx, conn, a, []*mutation{lost}); err != nil || !lost.isApplied {
		t.Fatalf("applied: %t, %v", lost.isApplied, err)
	}
	revision := lost.revision
	lost.reset()
	lost.lostAttempts = []*attempt{a}
	_, err := conn.Exec(ctx, h.database.sql.withNames(`
		create function `+pgx.Identifier{h.database.sql.schema, "refuse"}.Sanitize()+`() returns trigger language plpgsql as $body$
		begin
			raise exception 'an update was sent';
		end $body$;
		create trigger refuse before update on $resources for each statement execute function `+pgx.Identifier{h.database.sql.schema, "refuse"}.Sanitize()+`()`))
	if err != nil {
		t.Fatal(err)
	}
	if err := h.carryOut(ctx, []*mutation{lost}, func() {
		if !lost.isApplied || lost.revision != revision {
			t.Errorf("applied: %t, as revision %d, expected %d", lost.isApplied, lost.revision, revision)
		}
	}); err != nil {
		t.Error(err)
	}
}

// TestQuickUpdateKeepsTheBlocker sends a quick update, which does not wait, while a foreign session blocks all writers. The session is still
// known afterwards, because others wait for it.
func TestQuickUpdateKeepsTheBlocker(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	h, conn := b.handle, server.Connect(t)
	m := mutationOf(t, driver.Write, createdResource(t, ctx, b, "one"))
	foreign, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	_, err = foreign.Exec(ctx, h.database.sql.withNames(
		"select pg_advisory_xact_lock(($changes_name::regclass::oid::bigint & 2147483647)::int, (last_value & 2147483647)::int) from $changes_seq"))
	if err != nil {
		t.Fatal(err)
	}
	h.blocker.Store(&noteBlocker{pid: int(conn.PgConn().PID()), foundAt: time.Now().Add(time.Hour)})
	if err := h.sendQuick(ctx, []*mutation{m}); err != nil || m.isApplied || h.currentBlocker() == nil {
		t.Errorf("blocked: applied: %t, %v, the blocker: %v", m.isApplied, err, h.currentBlocker())
	}
	if err := foreign.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.sendQuick(ctx, []*mutation{m}); err != nil || !m.isApplied || h.currentBlocker() != nil {
		t.Errorf("released: applied: %t, %v, the blocker: %v", m.isApplied, err, h.currentBlocker())
	}
}

// TestLateQuickUpdate sends a quick update that arrives after its time, as over a slow link. The next attempt has more time: otherwise a large
// update would be sent a third time.
func TestLateQuickUpdate(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURLIn(t, server.Schema(t), "pool_max_conns=1"))
	h := b.handle
	for _, n := range []int{1, 2} {
		var ms []*mutation
		for i := range n {
			ms = append(ms, mutationOf(t, driver.Write, createdResource(t, ctx, b, fmt.Sprint(n, "-", i))))
		}
		conn, err := h.database.main.Acquire(ctx)
		if err != nil {
			t.Fatal(err)
		}
		on := h.database.sessions.of(conn.Conn())
		on.skew -= time.Hour
		conn.Release()
		if err := h.sendQuick(ctx, ms); err != nil || ms[0].isApplied {
			t.Fatalf("applied: %t, %v", ms[0].isApplied, err)
		}
		if extraTravel(ms) == 0 {
			t.Errorf("%d updates: the next attempt has no more time than the late one", n)
		}
		on.skew += time.Hour
	}
}
