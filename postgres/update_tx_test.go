//go:build integration

package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestUpdatesTogetherMeetNewerRows changes a row after the statement of a transaction has taken its snapshot and before it locks its rows. The
// transaction changes both of its resources or none, whether it expects the old version of the row or the new one.
func TestUpdatesTogetherMeetNewerRows(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	h := b.handle
	conn, other, observer := server.Connect(t), server.Connect(t), server.Connect(t)
	clock := pgx.Identifier{h.database.opts.Schema, "clock"}.Sanitize()
	if _, err := conn.Exec(ctx, "create function "+clock+"() returns timestamptz volatile language sql as 'select pg_advisory_xact_lock(4711); select clock_timestamp()'"); err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(h.database.sql.updateTx, "clock_timestamp()", clock+"()")
	if text == h.database.sql.updateTx {
		t.Fatal("the statement does not read the clock")
	}
	h.database.sql.updateTx = text

	const replace, remove = "update $resources set version = $2 where key = $1", "delete from $resources where key = $1 and $2::bytea is not null"
	for i, c := range []struct {
		name        string
		verb        driver.Verb
		change      string
		expectsNew  bool
		wantApplied bool
		want        error // nil: the transaction is repeated, or applied
	}{
		{"an update of the new version", driver.Write, replace, true, false, nil},
		{"an update of the old version", driver.Write, replace, false, false, storage.ErrCASFailure},
		{"an update of a deleted resource", driver.Write, remove, false, false, nil},
		{"a check of the new version", driver.Check, replace, true, true, nil},
		{"a check of the old version", driver.Check, replace, false, false, storage.ErrCASFailure},
		{"a check of a deleted resource", driver.Check, remove, false, false, nil},
	} {
		newer := make([]byte, versionSize)
		_, _ = rand.Read(newer)
		first, second := createdResource(t, ctx, b, fmt.Sprintf("%d-first", i)), createdResource(t, ctx, b, fmt.Sprintf("%d-second", i))
		if c.expectsNew {
			first.Version = versionText(newer)
		}
		ms := []*mutation{mutationOf(t, c.verb, first), mutationOf(t, driver.Write, second)}
		if _, err := other.Exec(ctx, "select pg_advisory_lock(4711)"); err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() {
			a := &attempt{expires: time.Now().Add(time.Hour)}
			if err := h.updateTx(ctx, conn, a, ms); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		})
		fixture.Eventually(t, "the statement to wait for the clock", func() bool {
			var waits bool
			err := observer.QueryRow(ctx, "select exists (select from pg_locks where locktype = 'advisory' and not granted and pid = $1)", conn.PgConn().PID()).Scan(&waits)
			return err == nil && waits
		})
		if _, err := other.Exec(ctx, h.database.sql.withNames(c.change), ms[0].keyBytes, newer); err != nil {
			t.Error(err)
		}
		if _, err := other.Exec(ctx, "select pg_advisory_unlock(4711)"); err != nil {
			t.Fatal(err)
		}
		running.Wait()
		again, err := decideAll(ms)
		var failed *storage.OpError
		if errors.As(err, &failed) && failed.Index != 0 {
			t.Errorf("%s: the operation %d has failed, expected 0", c.name, failed.Index)
		}
		if ms[1].isApplied != c.wantApplied || again != (!c.wantApplied && c.want == nil) || !errors.Is(err, c.want) {
			t.Errorf("%s: applied: %t, again: %t, %v, expected %t, %v", c.name, ms[1].isApplied, again, err, c.wantApplied, c.want)
		}
		var logged int
		tokens := [][]byte{ms[0].token, ms[1].token}
		err = observer.QueryRow(ctx, h.database.sql.withNames("select (select count(*) from $changes where token = any($1)) + (select count(*) from $resources where version = any($1))"), tokens).Scan(&logged)
		if want := map[bool]int{true: 2}[c.wantApplied]; err != nil || logged != want {
			t.Errorf("%s: %d rows were written, expected %d: %v", c.name, logged, want, err)
		}
	}
}

// TestTransactionsWithOneFence runs transactions that check one resource beside each other, while the resource is replaced, several times. None of
// them is committed after that.
func TestTransactionsWithOneFence(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	b := openHandle(t, ctx, env.Postgres(t).StoreURL(t))
	const writers, names, rounds = 4, 6, 3
	var resources [writers][]storage.Op
	for w := range writers {
		for n := range names {
			stored := createdResource(t, ctx, b, fmt.Sprintf("own-%d-%d", w, (n*5+w)%names))
			resources[w] = append(resources[w], storage.Op{Write: stored})
		}
		slices.Reverse(resources[w])
	}
	conn := acquire(t, ctx, b.handle.database.main)
	fence := createdResource(t, ctx, b, "fence")
	for round := range rounds {
		var running, begun sync.WaitGroup
		var isReplaced atomic.Bool
		begun.Add(writers)
		for w := range writers {
			running.Go(func() {
				hasBegun := sync.OnceFunc(begun.Done)
				defer hasBegun()
				commitWhile(t, ctx, b, fence, resources[w], hasBegun, &isReplaced)
			})
		}
		begun.Wait()
		replaced, err := b.WriteCAS(ctx, fence)
		if err != nil {
			t.Fatal(err)
		}
		isReplaced.Store(true)
		running.Wait()
		fence = replaced
		var commits, changes, after int
		err = conn.QueryRow(ctx, b.handle.database.sql.withNames(`
			select count(distinct revision), count(*), count(*) filter (where revision > (select revision from $changes where token = $1))
			from $changes where op = 1 and writes > 1 and key <> $2`), versionBytes(replaced.Version), key.Of(fence.Id).Bytes()).Scan(&commits, &changes, &after)
		if err != nil || changes != names*commits || commits < 3*writers || after > 0 {
			t.Errorf("round %d: %d changes of %d commits, %d of them after the fence was replaced: %v", round, changes, commits, after, err)
		}
	}
}

// commitWhile writes resources, together with a check of a fence, until the check fails. It calls hasBegun after some commits.
func commitWhile(
	t *testing.T, ctx context.Context, b *Backend, fence *resourcepb.Resource, resources []storage.Op, hasBegun func(), isReplaced *atomic.Bool,
) {
	check := storage.Op{Check: fence.Id, Version: fence.Version}
	for i := 0; ; i++ {
		isLate := isReplaced.Load()
		stored, err := b.Commit(ctx, append([]storage.Op{check}, resources...))
		if i == 2 {
			hasBegun()
		}
		if err != nil {
			if failed := (*storage.OpError)(nil); !errors.As(err, &failed) || failed.Index != 0 || !errors.Is(err, storage.ErrCASFailure) {
				t.Errorf("commit %d: %v, expected a conflict of the operation 0", i, err)
			}
			return
		}
		if isLate {
			t.Errorf("commit %d has begun after the fence was replaced, and succeeded", i)
			return
		}
		for n := range resources {
			resources[n].Write = stored[n+1]
		}
	}
}

func createdResource(t *testing.T, ctx context.Context, b *Backend, name string) *resourcepb.Resource {
	t.Helper()
	stored, err := b.WriteCAS(ctx, orderResource(name, ""))
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

// TestStatementsOfFewKeysArePlannedOnce executes the statements of a few updates and reads several times. Postgres then uses their generic plan: planning
// takes longer than the rest.
func TestStatementsOfFewKeysArePlannedOnce(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b := openHandle(t, ctx, server.StoreURL(t))
	h, conn := b.handle, server.Connect(t)
	ms := []*mutation{mutationOf(t, driver.Write, createdResource(t, ctx, b, "first")), mutationOf(t, driver.Write, createdResource(t, ctx, b, "second"))}
	for range 7 {
		a := &attempt{expires: time.Now().Add(time.Hour)}
		if err := errors.Join(h.quickChanges(ctx, conn, a, ms), h.updateMany(ctx, conn, a, ms), h.updateTx(ctx, conn, a, ms)); err != nil {
			t.Fatal(err)
		}
		rows, _ := conn.Query(ctx, h.database.sql.readMany, [][]byte{ms[0].keyBytes, ms[1].keyBytes}, 0, 0, []byte{}) // an error shows in the rows
		if rows.Close(); rows.Err() != nil {
			t.Fatal(rows.Err())
		}
	}
	for name, text := range map[string]string{"readMany": h.database.sql.readMany, "quickMany": h.database.sql.quickMany.text(false), "updateMany": h.database.sql.updateMany, "updateTx": h.database.sql.updateTx} {
		var generic, custom int
		if err := conn.QueryRow(ctx, "select generic_plans, custom_plans from pg_prepared_statements where statement = $1", text).Scan(&generic, &custom); err != nil {
			t.Fatal(err)
		}
		if generic == 0 {
			t.Errorf("%s: %d executions with a plan of their own, and none with the generic plan", name, custom)
		}
	}
}
