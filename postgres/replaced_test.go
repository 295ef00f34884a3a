//go:build integration

package postgres

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	past "github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestReplacedBetweenTwoStatements replaces the database behind a pooler by an older copy, after a reader has read how far history
// is final, and before it reads the changes. In the copy, lower numbers are in flight again: a change appears later, behind one
// that the reader has read. No call may report history as final up to there, and no watch from there may omit the change.
func TestReplacedBetweenTwoStatements(t *testing.T) {
	t.Parallel()
	server := env.StartPostgres(t)
	pooler := env.StartPgBouncer(t, server)
	for _, what := range []string{"feed", "watch", "page", "scan"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
			t.Cleanup(cancel)
			r := newReplaceable(t, ctx, server)
			appearsLater(t, ctx, r, pooler, what, func(b *Backend) {
				r.copy()
				for i := range 5 {
					if _, err := b.WriteCAS(ctx, named(fmt.Sprint("lost-", i), "v")); err != nil {
						t.Fatal(err)
					}
				}
			}, r.replace)
		})
	}
}

// TestReplacedBehindThePublished replaces the database while a page of history is read during a stalled commit. The feed's
// published changes are final in the old database, which proves nothing about the new one.
func TestReplacedBehindThePublished(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server := env.StartPostgres(t)
	r := newReplaceable(t, ctx, server)
	b, tr := openTraced(t, ctx, r.pooledBy(env.StartPgBouncer(t, server)))
	if _, err := b.WriteCAS(ctx, named("one", "v")); err != nil {
		t.Fatal(err)
	}
	from, err := b.handle.source.history.newest(ctx, b.handle.database.main)
	if err != nil {
		t.Fatal(err)
	}
	r.copy()
	stranger := r.database.Connect(t)
	for _, sql := range []string{"begin", note, "select nextval($seq_name)"} {
		if _, err := stranger.Exec(ctx, b.handle.database.sql.withNames(sql)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 3 {
		if _, err := b.WriteCAS(ctx, named(fmt.Sprint("lost-", i), "v")); err != nil {
			t.Fatal(err)
		}
	}
	published, err := b.handle.source.history.last(ctx, b.handle.database.main, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	b.handle.source.feedPosition.Store(&published)
	pages := 0
	sends := func(sql []string) {
		if len(sql) == 4 && sql[2] == b.handle.database.sql.changes {
			if pages++; pages == 2 {
				r.replace()
				beginLate(t, ctx, r.database)
			}
		}
	}
	tr.sends.Store(&sends)
	defer tr.sends.Store(nil)
	events, _, _, err := b.handle.source.page(ctx, from, 10)
	if len(events) > 0 || pages < 2 {
		t.Errorf("after %d polls, %d events were returned while a lower number is in flight: %v", pages, len(events), err)
	}
}

// TestCrashBetweenTwoStatements makes the server crash and recover at the same point. It then draws the numbers of rolled back
// writers again.
func TestCrashBetweenTwoStatements(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server := env.StartPostgres(t, "-c", "wal_writer_delay=10s") // otherwise the numbers are flushed
	r := newReplaceable(t, ctx, server)
	appearsLater(t, ctx, r, env.StartPgBouncer(t, server), "scan", func(b *Backend) {
		stranger := r.database.Connect(t)
		for _, sql := range []string{"begin", note, "select nextval($seq_name) from generate_series(1, 100)", "rollback"} {
			if _, err := stranger.Exec(ctx, b.handle.database.sql.withNames(sql)); err != nil {
				t.Fatal(err)
			}
		}
	}, func() {
		victim := server.Connect(t)
		server.KillProcess(t, victim.PgConn().PID())
		fixture.Eventually(t, "the session to end", func() bool { return victim.Ping(ctx) != nil })
		server.Await(t)
	})
}

// appearsLater makes a reader read through the pooler. Before that the store draws numbers. After the reader has read how far
// history is final, and before it reads the changes, the store loses the numbers.
func appearsLater(
	t *testing.T, ctx context.Context, r *replaceable, pooler *env.PgBouncerServer, what string,
	draw func(*Backend), forget func(),
) {
	t.Helper()
	b, tr := openTraced(t, ctx, r.pooledBy(pooler))
	if _, err := b.WriteCAS(ctx, named("one", "v")); err != nil {
		t.Fatal(err)
	}
	draw(b)

	var commit func()
	waiting, startTimeout := DelayedTimeout(t)
	committed := make(chan struct{})
	gone := false
	sends := func(sql []string) {
		if gone || !strings.Contains(sql[0], "repeatable read") && (what != "feed" || sql[0] != b.handle.database.sql.last) {
			return
		}
		gone = true
		forget()
		commit = beginLate(t, ctx, r.database)
		if what != "scan" { // a strong snapshot waits for the pending commit
			end := commit
			time.AfterFunc(300*time.Millisecond, func() { end(); close(committed) })
		}
		startTimeout(10 * time.Second)
	}
	tr.sends.Store(&sends)
	seen := false
	switch what {
	case "feed", "watch", "page":
		var w storage.Watch
		if what != "page" {
			w = fixture.WatchAll(t, b)
			for {
				event := fixture.Next(t, w)
				if event.GetEndOfSnapshot() != nil {
					break
				}
				seen = seen || event.GetUpsert().GetResource().GetId().GetName() == "late"
			}
		} else {
			page, err := b.ListPage(ctx, everything, &resourcepb.Tenancy{}, "", storage.ListOptions{Consistency: storage.StrongConsistency})
			if err != nil {
				t.Fatal(err)
			}
			for _, res := range page.Resources {
				seen = seen || res.Id.Name == "late"
			}
			if w, err = b.WatchFrom(ctx, everything, &resourcepb.Tenancy{}, "", page.Cursor); err != nil {
				t.Fatal(err)
			}
			defer w.Close()
		}
		<-committed
		if _, err := b.WriteCAS(ctx, named("last", "v")); err != nil {
			t.Fatal(err)
		}
		for {
			event, err := w.Next(ctx)
			if errors.Is(err, storage.ErrCompacted) {
				return // it reports it
			}
			if err != nil {
				t.Fatal(err)
			}
			switch event.GetUpsert().GetResource().GetId().GetName() {
			case "late":
				seen = true
			case "last":
				if !seen {
					t.Error("the snapshot and the watch omitted a commit")
				}
				return
			}
		}
	default:
		historian, _ := storage.As[past.Historian](b)
		scan, err := historian.Scan(waiting, past.Range{}, past.ScanOptions{})
		if commit == nil {
			t.Fatalf("the scan ended before it read changes: %v", err)
		}
		defer commit()
		if err == nil && len(scan.Records) > 0 {
			t.Errorf("history is reported as final up to %d while a lower number is in flight", scan.Revision)
		}
	}
}

func parsed(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// replaceable is a database that can be replaced by an older copy of itself.
type replaceable struct {
	t        *testing.T
	ctx      context.Context
	database *env.PostgresServer
	name     string
	admin    *pgx.Conn
}

func newReplaceable(t *testing.T, ctx context.Context, server *env.PostgresServer) *replaceable {
	t.Helper()
	r := &replaceable{t: t, ctx: ctx, database: server.Database(t), admin: server.Connect(t)}
	r.name = strings.TrimPrefix(parsed(t, r.database.URL).Path, "/")
	t.Cleanup(func() {
		_, _ = r.admin.Exec(context.Background(), "drop database if exists "+r.name+"_lost with (force)")
	})
	return r
}

// pooledBy returns the URL of a store in the database, through a pooler.
func (r *replaceable) pooledBy(pooler *env.PgBouncerServer) string {
	pooled := parsed(r.t, pooler.URL)
	pooled.Path = "/" + r.name
	pooled.RawQuery += "&" + url.Values{"schema": {"store"}, "listen": {"off"}, "poll": {"1h"}}.Encode()
	return pooled.String()
}

func (r *replaceable) copy() { r.alone("create database " + r.name + "_copy template " + r.name) }

func (r *replaceable) replace() {
	r.alone("begin; alter database " + r.name + " rename to " + r.name + "_lost; " +
		"alter database " + r.name + "_copy rename to " + r.name + "; commit")
}

// alone executes SQL that requires a database without connections.
func (r *replaceable) alone(sql string) {
	r.t.Helper()
	fixture.Eventually(r.t, "nobody else to use the database", func() bool {
		_, err := r.admin.Exec(r.ctx, "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '"+r.name+"'")
		if err != nil {
			r.t.Fatal(err)
		}
		if _, err = r.admin.Exec(r.ctx, sql); err != nil {
			_, _ = r.admin.Exec(r.ctx, "rollback") // an unfinished transaction
		}
		return err == nil
	})
}

// beginLate writes a resource named late, which the returned function commits, and early after it.
func beginLate(t *testing.T, ctx context.Context, database *env.PostgresServer) (commit func()) {
	t.Helper()
	other := openHandle(t, ctx, database.StoreURLIn(t, "store", "listen=off"))
	late := named("late", "v")
	m, err := newWrite(key.Of(late.Id), late)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := database.Connect(t).Begin(ctx)
	if err == nil {
		a := &attempt{lock: 1, expires: time.Now().Add(time.Hour)}
		err = other.handle.sender.apply(ctx, tx.Conn(), a, []*mutation{m}, false)
	}
	if err == nil {
		_, err = other.WriteCAS(ctx, named("early", "v"))
	}
	if err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := tx.Commit(ctx); err != nil {
			t.Error(err)
		}
	}
}
