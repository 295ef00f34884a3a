//go:build integration

package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/storetest"
	"github.com/ashlar-dev/storage/internal/testenv"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestReplacedBetweenTwoStatements replaces the database behind a pooler by an older copy, after a reader has asked how far the history is
// final, and before it reads. In the copy, lower numbers than that are under way again: a change appears later, behind one that the reader
// sees. Nobody may be told that all is final up to there, and no watch from there may leave the change out.
func TestReplacedBetweenTwoStatements(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server := testenv.StartPostgres(t)
	pooler := testenv.StartPgBouncer(t, server)
	for _, what := range []string{"feed", "watch", "page", "scan"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			database := server.Database(t)
			name := strings.TrimPrefix(parsed(t, database.URL).Path, "/")
			admin := server.Connect(t)
			alone := func(sql string) {
				t.Helper()
				storetest.Eventually(t, "nobody else to use the database", func() bool {
					_, err := admin.Exec(ctx, "select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = '"+name+"'")
					if err != nil {
						t.Fatal(err)
					}
					if _, err = admin.Exec(ctx, sql); err != nil {
						_, _ = admin.Exec(ctx, "rollback") // what it had begun
					}
					return err == nil
				})
			}
			t.Cleanup(func() { _, _ = admin.Exec(context.Background(), "drop database if exists "+name+"_lost with (force)") })
			appearsLater(t, ctx, database, pooler, what, func(b *Backend) {
				alone("create database " + name + "_copy template " + name)
				for i := range 5 {
					if _, err := b.WriteCAS(ctx, named(fmt.Sprint("lost-", i), "v")); err != nil {
						t.Fatal(err)
					}
				}
			}, func() {
				alone("begin; alter database " + name + " rename to " + name + "_lost; alter database " + name + "_copy rename to " + name + "; commit")
			})
		})
	}
}

// TestCrashBetweenTwoStatements has the server crash and recover by itself at the same point: what it then draws again are the numbers of
// writers that were rolled back.
func TestCrashBetweenTwoStatements(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	server := testenv.StartPostgres(t, "-c", "wal_writer_delay=10s") // or the numbers are not forgotten
	database := server.Database(t)
	appearsLater(t, ctx, database, testenv.StartPgBouncer(t, server), "scan", func(b *Backend) {
		stranger := database.Connect(t)
		for _, sql := range []string{"begin", note, "select nextval($seq_name) from generate_series(1, 100)", "rollback"} {
			if _, err := stranger.Exec(ctx, b.handle.database.sql.named(sql)); err != nil {
				t.Fatal(err)
			}
		}
	}, func() {
		victim := server.Connect(t)
		server.KillProcess(t, victim.PgConn().PID())
		storetest.Eventually(t, "the session to end", func() bool { return victim.Ping(ctx) != nil })
		server.Await(t)
	})
}

// appearsLater has a reader read through the pooler. Before that the store draws numbers, and after the reader has asked how far all is
// final, before it reads, the store forgets them.
func appearsLater(
	t *testing.T, ctx context.Context, database *testenv.PostgresServer, pooler *testenv.PgBouncerServer, what string,
	draw func(*Backend), forget func(),
) {
	t.Helper()
	pooled := parsed(t, pooler.URL)
	pooled.Path = parsed(t, database.URL).Path
	pooled.RawQuery += "&" + url.Values{"schema": {"store"}, "listen": {"off"}, "poll": {"1h"}}.Encode()
	b, tr := openTraced(t, ctx, pooled.String())
	if _, err := b.WriteCAS(ctx, named("one", "v")); err != nil {
		t.Fatal(err)
	}
	draw(b)

	var commit func()
	gone := false
	sends := func(sql []string) {
		if gone || !strings.Contains(sql[0], "repeatable read") && (what != "feed" || sql[0] != b.handle.database.sql.last) {
			return
		}
		gone = true
		forget()
		other := openHandle(t, ctx, database.StoreURLIn(t, "store", "listen=off"))
		late := named("late", "v")
		m, err := newWrite(key.Of(late.Id), late)
		if err != nil {
			t.Error(err)
		}
		tx, err := database.Connect(t).Begin(ctx)
		if err != nil {
			t.Error(err)
			return
		}
		commit = func() {
			if err := tx.Commit(ctx); err != nil {
				t.Error(err)
			}
		}
		a := &attempt{lock: 1, expires: time.Now().Add(time.Hour)}
		if err := other.handle.sender.apply(ctx, tx.Conn(), a, []*mutation{m}, false); err != nil {
			t.Error(err)
		}
		if _, err := other.WriteCAS(ctx, named("early", "v")); err != nil {
			t.Error(err)
		}
	}
	tr.sends.Store(&sends)
	switch what {
	case "feed", "watch", "page":
		var w storage.Watch
		if what != "page" {
			w = storetest.WatchAll(t, b)
			for storetest.Next(t, w).GetEndOfSnapshot() == nil {
			}
		} else {
			page, err := b.ListPage(ctx, everything, &resourcepb.Tenancy{}, "", storage.ListOptions{Consistency: storage.StrongConsistency})
			if err != nil {
				t.Fatal(err)
			}
			if w, err = b.WatchFrom(ctx, everything, &resourcepb.Tenancy{}, "", page.Cursor); err != nil {
				t.Fatal(err)
			}
			defer w.Close()
		}
		commit()
		if _, err := b.WriteCAS(ctx, named("last", "v")); err != nil {
			t.Fatal(err)
		}
		for seen := false; ; {
			event, err := w.Next(ctx)
			if errors.Is(err, storage.ErrCompacted) {
				return // it says so
			}
			if err != nil {
				t.Fatal(err)
			}
			switch event.GetUpsert().GetResource().GetId().GetName() {
			case "late":
				seen = true
			case "last":
				if !seen {
					t.Error("the watch left out what was committed after its snapshot")
				}
				return
			}
		}
	default:
		historian, _ := storage.As[storage.Historian](b)
		waiting, stop := context.WithTimeout(ctx, 10*time.Second)
		defer stop()
		defer func() { commit() }()
		if scan, err := historian.Scan(waiting, storage.Span{}, storage.ScanOptions{}); err == nil && len(scan.Records) > 0 {
			t.Errorf("all is said to be final up to %d while a lower number is under way", scan.Revision)
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
