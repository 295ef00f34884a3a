//go:build integration

package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/migrations"
)

// caller calls the function apply on its own connection, and commits.
type caller struct {
	conn *pgx.Conn
	sql  *statements
}

// operation is a creation of a key, or a check that the key is absent.
type operation struct {
	key  string
	kind int16
}

// apply returns the numbers of the changes, by key.
func (c caller) apply(ctx context.Context, atomic bool, operations ...operation) (map[string]int64, error) {
	in := columnsOf(mutationsOf(operations))
	rows, _ := c.conn.Query(ctx, c.sql.apply, rand.Int64(), time.Now().Add(time.Hour), atomic,
		in.keys, in.kinds, in.uids, in.expectedVersions, in.tokens, in.groupVersions, in.owners, in.data, pgtype.Text{}, pgtype.UUID{}, false, 0)
	drawn := make(map[string]int64)
	var place int
	var revision pgtype.Int8
	_, err := pgx.ForEachRow(rows, []any{&place, nil, nil, nil, &revision, nil, nil, nil, nil}, func() error {
		if revision.Valid {
			drawn[operations[place-1].key] = revision.Int64
		}
		return nil
	})
	return drawn, err
}

// create creates a resource by the quick statements, and returns its number by the key.
func (c caller) create(ctx context.Context, key string) (map[string]int64, error) {
	s, ms := sender{database: &database{sql: c.sql}}, mutationsOf([]operation{{key, kindWrite}})
	err := s.quickCreations(ctx, c.conn, &attempt{lock: rand.Int64(), expires: time.Now().Add(time.Hour)}, ms)
	if err != nil || !ms[0].isApplied {
		return nil, err
	}
	return map[string]int64{key: ms[0].revision}, nil
}

func mutationsOf(operations []operation) []*mutation {
	ms := make([]*mutation, len(operations))
	for i, op := range operations {
		token := fmt.Appendf(nil, "%016x", rand.Uint64())
		ms[i] = &mutation{
			Mutation: new(driver.Mutation), kind: op.kind, keyBytes: []byte(op.key), token: token, groupVersion: []byte("v1"), data: []byte("data"),
		}
	}
	return ms
}

// newCallers returns callers on one store, and its statements.
func newCallers(ctx context.Context, t *testing.T, n int) ([]caller, *statements) {
	t.Helper()
	server := env.Postgres(t)
	schema := server.Schema(t)
	sql := newStatements(schema)
	callers := make([]caller, n)
	for i := range callers {
		callers[i] = caller{server.Connect(t), sql}
	}
	if _, err := migrations.Up(ctx, callers[0].conn, schema); err != nil {
		t.Fatal(err)
	}
	return callers, sql
}

// TestCreationsHoldTheirNumbers compares the numbers in the rows of new resources with the log.
func TestCreationsHoldTheirNumbers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name      string
		n, with   int // creations, and how many of their rows contain numbers
		atomic    bool
		isolation string
	}{
		{"one", 1, 1, false, "read committed"},
		{"some", 64, 64, false, "read committed"},
		{"a transaction", 64, 64, true, "read committed"},
		{"too many locks", 65, 0, false, "read committed"},
		{"an old snapshot", 3, 0, false, "repeatable read"},
		{"an old snapshot of a transaction", 3, 0, true, "serializable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			defer cancel()
			callers, sql := newCallers(ctx, t, 1)
			conn := callers[0].conn
			if _, err := conn.Exec(ctx, "set session characteristics as transaction isolation level "+c.isolation); err != nil {
				t.Fatal(err)
			}
			operations := []operation{{"absent", kindCheck}}
			for i := range c.n {
				operations = append(operations, operation{fmt.Sprintf("key-%d", i), kindWrite})
			}
			drawn, err := callers[0].apply(ctx, c.atomic, operations...)
			if err != nil || len(drawn) != c.n {
				t.Fatalf("%d of %d creations were applied: %v", len(drawn), c.n, err)
			}
			var with, wrong int
			if err := conn.QueryRow(ctx, sql.withNames(`
select count(resource.modified), count(*) filter (where (change.created, change.writes, change.revision, change.place)
    <> (resource.created, resource.writes, resource.modified, resource.modified_place))
from $resources resource join $changes change using (key)`)).Scan(&with, &wrong); err != nil {
				t.Fatal(err)
			}
			if with != c.with || wrong != 0 {
				t.Errorf("%d rows contain numbers, %d of them wrong; expected %d and none", with, wrong, c.with)
			}
		})
	}
}

// waiting blocks until n of the callers' sessions wait for a lock, and returns true. It returns false if done is closed first.
func waiting(ctx context.Context, t *testing.T, watcher *pgx.Conn, n int, done <-chan struct{}, callers ...caller) bool {
	t.Helper()
	var pids []uint32
	for _, c := range callers {
		pids = append(pids, c.conn.PgConn().PID())
	}
	for {
		var found int
		err := watcher.QueryRow(ctx, `select count(distinct pid) from pg_locks where not granted and pid = any($1)`, pids).Scan(&found)
		if err != nil {
			t.Fatal(err)
		}
		if found == n {
			return true
		}
		select {
		case <-done:
			return false
		default:
		}
	}
}

// rounds repeats a round that depends on timing until it succeeds.
func rounds(t *testing.T, round func(i int) bool) {
	t.Helper()
	for i := range 200 {
		if round(i) {
			return
		}
	}
	t.Fatal("the sessions never met")
}

// TestCreationAfterAnotherLife creates and deletes a resource in another session between the moment when a creation of it has drawn
// its number and the insertion of its row. The creation must not be applied with a number from before the deletion.
func TestCreationAfterAnotherLife(t *testing.T) {
	t.Parallel()
	for _, quick := range []bool{false, true} {
		t.Run(fmt.Sprint("quick=", quick), func(t *testing.T) {
			t.Parallel()
			creationAfterAnotherLife(t, quick)
		})
	}
}

func creationAfterAnotherLife(t *testing.T, quick bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	callers, sql := newCallers(ctx, t, 3)
	other, watcher := callers[1].conn, callers[2].conn
	rounds(t, func(i int) bool {
		key := fmt.Sprintf("key-%d", i)
		tx, err := other.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, sql.withNames(`insert into $resources (key, uid, version, group_version, data) values ($1, 'u', 'v', 'g', 'd')`),
			[]byte(key)); err != nil {
			t.Fatal(err)
		}
		var drawn map[string]int64
		done := make(chan struct{})
		go func() {
			defer close(done)
			if quick {
				drawn, err = callers[0].create(ctx, key)
			} else {
				drawn, err = callers[0].apply(ctx, false, operation{key, kindWrite})
			}
		}()
		met := waiting(ctx, t, watcher, 1, done, callers[0])
		var deleted int64
		if err := tx.QueryRow(ctx, sql.withNames(`
with life as (
    insert into $changes (revision, created, writes, place, op, more, key, version, token, data)
    select nextval($seq_name), 1, 1, 0, op, false, $1, 'v', 'v', 'd' from unnest('{1,2}'::int[]) op returning revision
), gone as (
    delete from $resources where key = $1
)
select max(revision) from life`), []byte(key)).Scan(&deleted); err != nil {
			t.Fatal(err)
		}
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		<-done
		if err == nil && drawn[key] < deleted {
			t.Fatalf("the creation has number %d, the deletion before it %d", drawn[key], deleted)
		}
		return met && (hasCode(err, codeConcurrentCreate) || errors.Is(err, errCreatedMeanwhile) && classify(err) == outcomeNotApplied)
	})
}

// TestCreationAfterAbsence makes a transaction wait before it draws its number. The transaction relies on the absence of a key, or
// of more keys than it can lock, and another session creates such a key. The creation must come later, or the transaction must be
// repeated.
func TestCreationAfterAbsence(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		absences int
		quick    bool
	}{{1, false}, {100, false}, {100, true}} {
		t.Run(fmt.Sprint(c.absences, " quick=", c.quick), func(t *testing.T) {
			t.Parallel()
			creationAfterAbsence(t, c.absences, c.quick)
		})
	}
}

func creationAfterAbsence(t *testing.T, absences int, quick bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	callers, sql := newCallers(ctx, t, 4)
	other, watcher := callers[2].conn, callers[3].conn
	rounds(t, func(i int) bool {
		absent, held, written := fmt.Sprintf("absent-%d", i), fmt.Sprintf("held-%d", i), fmt.Sprintf("written-%d", i)
		transaction := []operation{{absent, kindCheck}}
		for n := range absences - 1 {
			transaction = append(transaction, operation{fmt.Sprintf("absent-%d-%03d", i, n), kindCheck})
		}
		transaction = append(transaction, operation{held, kindCheck}, operation{written, kindWrite})
		tx, err := other.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, sql.withNames(`insert into $resources (key, uid, version, group_version, data) values ($1, 'u', 'v', 'g', 'd')`),
			[]byte(held)); err != nil {
			t.Fatal(err)
		}
		var drawn [2]map[string]int64
		var errs [2]error
		done := [2]chan struct{}{make(chan struct{}), make(chan struct{})}
		go func() {
			defer close(done[0])
			drawn[0], errs[0] = callers[0].apply(ctx, true, transaction...)
		}()
		met := waiting(ctx, t, watcher, 1, done[0], callers[0])
		go func() {
			defer close(done[1])
			if quick {
				drawn[1], errs[1] = callers[1].create(ctx, absent)
			} else {
				drawn[1], errs[1] = callers[1].apply(ctx, false, operation{absent, kindWrite})
			}
		}()
		met = met && waiting(ctx, t, watcher, 2, done[1], callers[:2]...)
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
		<-done[0]
		<-done[1]
		if !met || errs[1] != nil {
			return false
		}
		if absences > 1 && hasCode(errs[0], codeConcurrentCreate) {
			return true
		}
		if errs[0] != nil {
			return false
		}
		if drawn[1][absent] < drawn[0][written] {
			t.Fatalf("the resource was created as number %d, and was absent as of number %d", drawn[1][absent], drawn[0][written])
		}
		return true
	})
}

// TestLostRaceDrawsNoNumber makes a creation wait for another creation of the same resource. The write fails before it draws a
// number, because readers would wait for that number.
func TestLostRaceDrawsNoNumber(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	callers, sql := newCallers(ctx, t, 3)
	watcher := callers[2].conn
	rounds(t, func(i int) bool {
		key := fmt.Sprintf("key-%d", i)
		tx, err := callers[0].conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		drawn, err := callers[0].apply(ctx, false, operation{key, kindWrite})
		if err != nil {
			t.Fatal(err)
		}
		var lost error
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, lost = callers[1].apply(ctx, false, operation{key, kindWrite})
		}()
		met := waiting(ctx, t, watcher, 1, done, callers[1])
		if err := tx.Commit(ctx); err != nil {
			t.Fatal(err)
		}
		<-done
		if !met || !hasCode(lost, codeConcurrentCreate) {
			return false
		}
		var last int64
		if err := watcher.QueryRow(ctx, sql.lastNumber).Scan(&last); err != nil {
			t.Fatal(err)
		}
		if last != drawn[key] {
			t.Errorf("the last number is %d, that of the resource %d", last, drawn[key])
		}
		return true
	})
}

// TestLocksOfATransaction runs a transaction that relies on the absence of many keys. The server has space for only a few locks.
func TestLocksOfATransaction(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	callers, _ := newCallers(ctx, t, 1)
	operations := []operation{{"written", kindWrite}}
	for i := range maxOps - 1 {
		operations = append(operations, operation{fmt.Sprintf("absent-%d", i), kindCheck})
	}
	tx, err := callers[0].conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := callers[0].apply(ctx, true, operations...); err != nil {
		t.Fatal(err)
	}
	var locks int
	if err := tx.QueryRow(ctx, `select count(*) from pg_locks where pid = pg_backend_pid()`).Scan(&locks); err != nil {
		t.Fatal(err)
	}
	if locks > 100 {
		t.Errorf("the transaction holds %d locks", locks)
	}
}
