//go:build integration

package postgres

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// TestQuickCreations sends creations by the quick statements, alone and among others, while something prevents one of them, or all. It is not
// applied, draws no number, and waits for nothing. Afterwards it is applied, with the same row and the same change as by the function apply.
func TestQuickCreations(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	h, conn, other := b.handle, server.Connect(t), server.Connect(t)
	exec := func(t *testing.T, sql string, arguments ...any) {
		t.Helper()
		if _, err := other.Exec(ctx, h.database.sql.withNames(sql), arguments...); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	rollback := func(t *testing.T) { exec(t, "rollback") }
	last := func(t *testing.T) (n int64) {
		t.Helper()
		if err := other.QueryRow(ctx, h.database.sql.lastNumber).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, c := range map[string]struct {
		prevent func(t *testing.T, a *attempt, m *mutation)
		release func(t *testing.T)
		all     bool // it prevents all creations of the statement
	}{
		"a stored resource": {prevent: func(t *testing.T, _ *attempt, m *mutation) {
			exec(t, "insert into $resources (key, uid, version, group_version, data) values ($1, '', '', '', '')", m.keyBytes)
		}, release: func(t *testing.T) { exec(t, "delete from $resources where uid = ''") }},
		"another creator": {prevent: func(t *testing.T, _ *attempt, m *mutation) {
			exec(t, "begin")
			exec(t, "select pg_advisory_xact_lock(hashtextextended(encode($1::bytea, 'hex'), $changes_name::regclass::oid::bigint))", m.keyBytes)
		}, release: rollback, all: true},
		"a note that is not available": {prevent: func(t *testing.T, _ *attempt, _ *mutation) {
			exec(t, "begin")
			exec(t, "select pg_advisory_xact_lock(($changes_name::regclass::oid::bigint & 2147483647)::int, (last_value & 2147483647)::int) from $changes_seq")
		}, release: rollback, all: true},
		"a revocation": {prevent: func(t *testing.T, a *attempt, _ *mutation) { exec(t, "insert into $revoked values ($1)", a.lock) }, all: true,
			release: func(t *testing.T) { exec(t, "delete from $revoked") }},
		"a revocation that is not committed": {prevent: func(t *testing.T, a *attempt, _ *mutation) {
			exec(t, "begin")
			exec(t, h.database.sql.revoke, a.lock)
		}, release: rollback, all: true},
		"an old snapshot": {prevent: func(t *testing.T, _ *attempt, _ *mutation) {
			if _, err := conn.Exec(ctx, "set default_transaction_isolation = 'repeatable read'"); err != nil {
				t.Fatal(err)
			}
		}, all: true, release: func(t *testing.T) {
			if _, err := conn.Exec(ctx, "reset default_transaction_isolation"); err != nil {
				t.Fatal(err)
			}
		}},
		"the end of its time":        {prevent: func(_ *testing.T, a *attempt, _ *mutation) { a.expires = time.Now().Add(-time.Hour) }, all: true},
		"a floor of another history": {prevent: func(_ *testing.T, a *attempt, _ *mutation) { a.floor += 1000 }, all: true},
	} {
		for _, n := range []int{1, 3} {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				ms := make([]*mutation, n)
				for i := range ms {
					ms[i] = mutationOf(t, driver.Write, orderResource(fmt.Sprint(name, n, i), "owner"))
				}
				a := &attempt{lock: rand.Int64(), expires: time.Now().Add(time.Hour), floor: last(t)}
				prevented := ms[n-1]
				c.prevent(t, a, prevented)
				before := last(t)
				if err := h.quickCreations(ctx, conn, a, ms); err != nil {
					t.Fatal(err)
				}
				if c.release != nil {
					c.release(t)
				}
				checkLastIsPrevented(t, ms, c.all, last(t)-before)
				a = &attempt{lock: rand.Int64(), expires: time.Now().Add(time.Hour)}
				if err := h.quickCreations(ctx, conn, a, []*mutation{prevented}); err != nil || !prevented.isApplied {
					t.Fatalf("applied: %t, %v", prevented.isApplied, err)
				}
				thorough := mutationOf(t, driver.Write, orderResource(fmt.Sprint("another ", name, n), "owner"))
				thorough.Uid, thorough.data = prevented.Uid, prevented.data
				if err := h.apply(ctx, conn, a, []*mutation{thorough}, false); err != nil || !thorough.isApplied {
					t.Fatalf("the function apply: applied: %t, %v", thorough.isApplied, err)
				}
				quickForm, form := changeForm(t, ctx, b, conn, prevented), changeForm(t, ctx, b, conn, thorough)
				if quickForm != form || prevented.writes != thorough.writes || prevented.createRevision != prevented.revision {
					t.Errorf("the changes %s and %s, the answers %d/%d/%d and %d/%d/%d", quickForm, form, prevented.revision, prevented.createRevision, prevented.writes,
						thorough.revision, thorough.createRevision, thorough.writes)
				}
			})
		}
	}
}

// TestManyCreations creates more resources at once than one transaction may lock. All rows contain their numbers.
func TestManyCreations(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	ms := make([]*mutation, 2*maxQuickCreations+1)
	for i := range ms {
		ms[i] = mutationOf(t, driver.Write, orderResource(fmt.Sprint(i), ""))
	}
	if err := b.handle.carryOut(ctx, slices.Clone(ms), func() {}); err != nil {
		t.Fatal(err)
	}
	for i, m := range ms {
		if !m.isApplied {
			t.Errorf("the creation %d is not applied", i)
		}
	}
	var numbered int
	err := server.Connect(t).QueryRow(ctx, b.handle.database.sql.withNames("select count(modified) from $resources")).Scan(&numbered)
	if err != nil || numbered != len(ms) {
		t.Errorf("%d rows of %d contain their numbers: %v", numbered, len(ms), err)
	}
}

// TestRunningQuickCreationIsNotRevoked revokes the attempt of a quick creation before its commit. The attempt is running, so the revocation must fail.
func TestRunningQuickCreationIsNotRevoked(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	conn := server.Connect(t)
	m, a := mutationOf(t, driver.Write, orderResource("one", "")), &attempt{lock: rand.Int64(), expires: time.Now().Add(time.Hour)}
	tx, err := conn.Begin(ctx)
	if err == nil {
		err = b.handle.quickCreations(ctx, conn, a, []*mutation{m})
	}
	if err != nil || !m.isApplied {
		t.Fatalf("applied: %t, %v", m.isApplied, err)
	}
	revoked := true
	if err := server.Connect(t).QueryRow(ctx, b.handle.database.sql.revoke, a.lock).Scan(&revoked); err != nil || revoked {
		t.Errorf("the running attempt is revoked: %t, %v", revoked, err)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
}

// TestQuickStatementsSettle carries out mutations by the quick statements whose callers need to know whether an earlier change is pending: beside no
// other writer, and beside a writer that holds an earlier note.
func TestQuickStatementsSettle(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	h, conn, other := b.handle, server.Connect(t), server.Connect(t)
	for _, pending := range []bool{false, true} {
		for _, n := range []int{1, 3} {
			var updates, deletions, creations []*mutation
			for i := range n {
				name := fmt.Sprint(pending, n, i)
				updates = append(updates, mutationOf(t, driver.Write, createdResource(t, ctx, b, "updated "+name)))
				deletions = append(deletions, mutationOf(t, driver.Delete, createdResource(t, ctx, b, "deleted "+name)))
				creations = append(creations, mutationOf(t, driver.Write, orderResource("created "+name, "")))
			}
			all := slices.Concat(updates, deletions, creations)
			all[0].Exclusive, all[n].Exclusive, all[2*n].Exclusive = true, true, true
			tx, err := other.Begin(ctx)
			if err == nil && pending {
				_, err = tx.Exec(ctx, h.database.sql.withNames(note))
			}
			a := &attempt{lock: rand.Int64(), expires: time.Now().Add(time.Hour)}
			err = errors.Join(err, h.quickChanges(ctx, conn, a, slices.Concat(updates, deletions)), h.quickCreations(ctx, conn, a, creations))
			if err != nil {
				t.Fatal(err)
			}
			for i, m := range all {
				if !m.isApplied || m.isFinal == pending {
					t.Errorf("beside a pending writer: %t, %d: the mutation %d is applied: %t, final: %t", pending, n, i, m.isApplied, m.isFinal)
				}
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestCreatorsOfOneKey lets two handles create and delete the same resource beside each other. Of two creations exactly one succeeds, and the log
// has a creation and a deletion of the resource in turn.
func TestCreatorsOfOneKey(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	handles := []*Backend{openHandle(t, ctx, server.StoreURLIn(t, schema)), openHandle(t, ctx, server.StoreURLIn(t, schema))}
	for range 100 {
		type answer struct {
			version string
			err     error
		}
		answers := make(chan answer, len(handles))
		for _, b := range handles {
			go func() {
				res, err := b.WriteCAS(ctx, orderResource("one", ""))
				answers <- answer{res.GetVersion(), err}
			}()
		}
		version := ""
		for range handles {
			switch got := <-answers; {
			case got.err == nil && version == "":
				version = got.version
			case !errors.Is(got.err, storage.ErrCASFailure):
				t.Errorf("a creation of the resource returned %v", got.err)
			}
		}
		if err := handles[0].DeleteCAS(ctx, orderResource("one", "").Id, version); err != nil {
			t.Fatal(err)
		}
	}
	var alternate bool
	err := server.Connect(t).QueryRow(ctx, handles[0].handle.database.sql.withNames(
		"select count(*) = 200 and bool_and(op = 1 + (number - 1) % 2) from (select op, row_number() over (order by revision) as number from $changes) as numbered")).Scan(&alternate)
	if err != nil || !alternate {
		t.Errorf("the log does not have 100 creations and deletions in turn: %v", err)
	}
}
