//go:build integration

package postgres

import (
	"context"
	"fmt"
	"regexp"
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

// rowWriters are the calls that lock or change rows of resources, each in a transaction of the test, by name. The names of statements
// are fields of the type statements.
var rowWriters = map[string]struct {
	verb driver.Verb
	call func(context.Context, *sender, *pgx.Conn, []*mutation) error
}{
	"updateOne": {driver.Write, func(ctx context.Context, s *sender, conn *pgx.Conn, ms []*mutation) error {
		return s.changeOne(ctx, conn, rowAttempt(), ms[0])
	}},
	"deleteOne": {driver.Delete, func(ctx context.Context, s *sender, conn *pgx.Conn, ms []*mutation) error {
		return s.changeOne(ctx, conn, rowAttempt(), ms[0])
	}},
	"updateMany": {driver.Write, func(ctx context.Context, s *sender, conn *pgx.Conn, ms []*mutation) error {
		return s.updateMany(ctx, conn, rowAttempt(), ms)
	}},
	"quickOne": {driver.Write, func(ctx context.Context, s *sender, conn *pgx.Conn, ms []*mutation) error {
		return s.quickChanges(ctx, conn, rowAttempt(), ms)
	}},
	"quickMany": {driver.Write, func(ctx context.Context, s *sender, conn *pgx.Conn, ms []*mutation) error {
		absent := *ms[0]
		absent.keyBytes, absent.token = []byte("absent"), make([]byte, versionSize)
		return s.quickChanges(ctx, conn, rowAttempt(), []*mutation{&absent, ms[0]})
	}},
	"quickDeletions": {driver.Delete, func(ctx context.Context, s *sender, conn *pgx.Conn, ms []*mutation) error {
		return s.quickChanges(ctx, conn, rowAttempt(), ms)
	}},
	"updateTx":                    {driver.Write, updateRowsTogether},
	"updateTx, a check":           {driver.Check, updateRowsTogether},
	"apply, an update":            {driver.Write, applyRows(false)},
	"apply, a deletion":           {driver.Delete, applyRows(false)},
	"apply, a check":              {driver.Check, applyRows(false)},
	"apply together, an update":   {driver.Write, applyRows(true)},
	"apply together, a deletion":  {driver.Delete, applyRows(true)},
	"apply together, only checks": {driver.Check, applyRows(true)},
}

func rowAttempt() *attempt { return &attempt{lock: 1, expires: time.Now().Add(time.Hour)} }

func applyRows(atomic bool) func(context.Context, *sender, *pgx.Conn, []*mutation) error {
	return func(ctx context.Context, s *sender, conn *pgx.Conn, ms []*mutation) error {
		return s.apply(ctx, conn, rowAttempt(), ms, atomic)
	}
}

func updateRowsTogether(ctx context.Context, s *sender, conn *pgx.Conn, ms []*mutation) error {
	return s.updateTx(ctx, conn, rowAttempt(), ms)
}

// lockedRow is a stored resource whose row other sessions have locked.
type lockedRow struct {
	t        *testing.T
	b        *Backend
	res      *resourcepb.Resource
	key      []byte
	sessions lockers
}

// lockers are sessions that lock rows.
type lockers [2]*pgx.Conn

func newLockers(t *testing.T, server *env.PostgresServer) lockers {
	t.Helper()
	return lockers{server.Connect(t), server.Connect(t)}
}

func newLockedRow(t *testing.T, ctx context.Context, sessions lockers, b *Backend, name string) *lockedRow {
	t.Helper()
	res, err := b.WriteCAS(ctx, orderResource(name, ""))
	if err != nil {
		t.Fatal(err)
	}
	return lockedRowOf(t, sessions, b, res)
}

func lockedRowOf(t *testing.T, sessions lockers, b *Backend, res *resourcepb.Resource) *lockedRow {
	t.Helper()
	return &lockedRow{t, b, res, mutationOf(t, driver.Check, res).keyBytes, sessions}
}

// exec executes a statement in one of the sessions, with the names of the store and with the key of the row for $key.
func (r *lockedRow) exec(ctx context.Context, session int, sql string) {
	r.t.Helper()
	sql = strings.ReplaceAll(sql, "$key", fmt.Sprintf(`'\x%x'::bytea`, r.key))
	if _, err := r.sessions[session].Exec(ctx, r.b.handle.database.sql.withNames(sql)); err != nil {
		r.t.Fatal(err)
	}
}

// xmax returns the id in the header of the row that a new snapshot shows.
func (r *lockedRow) xmax(ctx context.Context, conn *pgx.Conn) (id uint32) {
	r.t.Helper()
	err := conn.QueryRow(ctx, r.b.handle.database.sql.withNames("select xmax::text::bigint from $resources where key = $1"), r.key).Scan(&id)
	if err != nil {
		r.t.Fatal(err)
	}
	return id
}

// share locks the row in both sessions. The row then has the id of a multixact.
func (r *lockedRow) share(ctx context.Context) {
	r.t.Helper()
	var ids []uint32
	for session, conn := range r.sessions {
		r.exec(ctx, session, "begin")
		r.exec(ctx, session, "select from $resources where key = $key for key share")
		var id uint32
		if err := conn.QueryRow(ctx, "select pg_current_xact_id()::xid::text::bigint").Scan(&id); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if id := r.xmax(ctx, r.sessions[0]); slices.Contains(ids, id) {
		r.t.Errorf("the row has the id %d of one of its two lockers, expected a multixact", id)
	}
}

// end ends the transactions of both sessions.
func (r *lockedRow) end(ctx context.Context) {
	r.t.Helper()
	r.exec(ctx, 0, "commit")
	r.exec(ctx, 1, "rollback")
}

// rowPasts are the ended locks that a row may have before a writer locks it.
var rowPasts = map[string]func(context.Context, *lockedRow){
	"no lock": func(context.Context, *lockedRow) {},
	"a multixact": func(ctx context.Context, r *lockedRow) {
		r.share(ctx)
		r.end(ctx)
	},
	"a lock of a subtransaction": func(ctx context.Context, r *lockedRow) {
		r.exec(ctx, 0, "begin")
		r.exec(ctx, 0, "savepoint nested")
		r.exec(ctx, 0, "select from $resources where key = $key for update")
		r.exec(ctx, 0, "release savepoint nested")
		r.exec(ctx, 0, "commit")
	},
	"an update that was rolled back": func(ctx context.Context, r *lockedRow) {
		r.exec(ctx, 0, "begin")
		r.exec(ctx, 0, "update $resources set data = data where key = $key")
		r.exec(ctx, 0, "rollback")
	},
}

// TestWritersLockForUpdate carries out each kind of mutation in a transaction that does not end. The row of each resource must be locked
// against every other lock, by the id of the transaction itself: readers of the row's header rely on both. The id is neither that of a
// subtransaction nor of a multixact, whatever locks the row had before. A row that another session has locked, however weakly, is not changed.
func TestWritersLockForUpdate(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	conn, observer, sessions := server.Connect(t), server.Connect(t), newLockers(t, server)
	for name, w := range rowWriters {
		for past, lock := range rowPasts {
			row := newLockedRow(t, ctx, sessions, b, name+" after "+past)
			lock(ctx, row)
			m := mutationOf(t, w.verb, row.res)
			tx, err := conn.Begin(ctx)
			if err == nil {
				err = w.call(ctx, &b.handle.sender, conn, []*mutation{m})
			}
			var id uint32
			if err == nil {
				err = tx.QueryRow(ctx, "select pg_current_xact_id()::xid::text::bigint").Scan(&id)
			}
			if err != nil {
				t.Fatal(err)
			}
			if m.isApplied != (w.verb != driver.Check) || m.busy {
				t.Errorf("%s after %s: applied: %t, busy: %t", name, past, m.isApplied, m.busy)
			}
			if header := row.xmax(ctx, observer); header != id {
				t.Errorf("%s after %s: the row has the id %d, expected the writer's %d", name, past, header, id)
			}
			var free int
			err = observer.QueryRow(ctx, b.handle.database.sql.withNames("select count(*) from (select from $resources where key = $1 for key share skip locked) as free"), row.key).Scan(&free)
			if err != nil || free != 0 {
				t.Errorf("%s after %s: another session has locked the row: %v", name, past, err)
			}
			if err := tx.Rollback(ctx); err != nil {
				t.Fatal(err)
			}
		}
		row := newLockedRow(t, ctx, sessions, b, name+" beside a multixact")
		row.share(ctx)
		m := mutationOf(t, w.verb, row.res)
		if err := w.call(ctx, &b.handle.sender, conn, []*mutation{m}); err != nil || m.isApplied {
			t.Errorf("%s beside two other lockers: applied: %t, %v", name, m.isApplied, err)
		}
		row.end(ctx)
	}
}

var (
	changesRows    = regexp.MustCompile(`(?i)(update|delete from|insert into|merge into)\s+(only\s+)?\S*resources\b`)
	weakLock       = regexp.MustCompile(`(?i)for\s+(no\s+key\s+update|key\s+share|share)`)
	subtransaction = regexp.MustCompile(`(?i)\bexception\s+when\b|\bsavepoint\b`)
)

// TestAllWritersAreKnown searches the statements and the functions of a store for changes of rows, weaker locks and subtransactions.
// TestWritersLockForUpdate must know each writer.
func TestAllWritersAreKnown(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	sql := b.handle.database.sql
	texts := sql.texts()
	rows, _ := server.Connect(t).Query(ctx, "select 'function ' || proname, prosrc from pg_proc where pronamespace = $1::regnamespace", pgx.Identifier{sql.schema}.Sanitize())
	var name, text string
	if _, err := pgx.ForEachRow(rows, []any{&name, &text}, func() error {
		texts[name] = text
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for name, text := range texts {
		_, known := rowWriters[strings.TrimSuffix(name, settledName)]
		known = known || name == "function apply" || strings.TrimSuffix(name, settledName) == "quickCreations" // of new rows
		if changes := changesRows.MatchString(text); changes != known {
			t.Errorf("%s changes rows of resources: %t, expected %t", name, changes, known)
		}
		weak := weakLock.FindAllString(text, -1)
		if name == "function apply" { // of a note in the journal
			weak = weak[1:]
		}
		if len(weak) > 0 || subtransaction.MatchString(text) {
			t.Errorf("%s has a weaker lock or a subtransaction: %q", name, weak)
		}
	}
}
