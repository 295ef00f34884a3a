//go:build integration

package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// silenced makes a handle silent for the duration of a test.
func silenced(b *Backend) {
	later := time.Now().Add(time.Hour)
	b.handle.notifier.markedAt.Store(&later)
}

// TestReceiversPollDuringABurst writes without notifications after a marked one. A watch of another handle returns the events, because
// its feed polls by itself.
func TestReceiversPollDuringABurst(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	url := server.StoreURL(t, "poll=1h")
	reader, writer := openHandle(t, ctx, url), openHandle(t, ctx, url)
	PrepareNotifications(t, writer)
	w := fixture.WatchChanges(t, reader)
	silenced(reader) // the window does not end
	write := func(name string) {
		t.Helper()
		res := fixture.Write(t, writer, fixture.Resource(name, "v"))
		if got := fixture.Next(t, w).GetUpsert().GetResource(); got.GetVersion() != res.Version {
			t.Fatalf("got %v, expected %s", got, name)
		}
	}
	write("with a notification")
	silenced(writer)
	for i := range 3 { // one of them may be read because the feed polls again after it has begun to listen
		write(fmt.Sprintf("without-%d", i))
	}
}

// TestMarkedNotifications reads the notifications of a handle whose feed gathers. The first one is marked. The handle sends the last one
// when it is closed, although the silence has not ended.
func TestMarkedNotifications(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	url := server.StoreURL(t, "poll=1h")
	reader, writer := openHandle(t, ctx, url), openHandle(t, ctx, url)
	PrepareNotifications(t, writer)
	fixture.WatchChanges(t, reader)
	fixture.Eventually(t, "the reader listens", func() bool { return reader.handle.notifier.listener.Load() != 0 })
	conn := server.Connect(t)
	n := writer.handle.notifier
	if _, err := conn.Exec(ctx, "listen "+pgx.Identifier{n.channel()}.Sanitize()); err != nil {
		t.Fatal(err)
	}
	receive := func(want string) {
		t.Helper()
		got, err := conn.WaitForNotification(ctx)
		if err != nil || got.Payload != want {
			t.Fatalf("got %+v, %v; expected %s", got, err, want)
		}
	}
	n.gathers.Store(true)
	fixture.Write(t, writer, fixture.Resource("first", "v"))
	receive(n.name + burstMark)
	fixture.Eventually(t, "the other handle hears the mark", func() bool { return reader.handle.notifier.markedAt.Load() != nil })
	n.gathers.Store(false)
	fixture.Write(t, writer, fixture.Resource("after the silence", "v"))
	receive(n.name)
	silenced(writer)
	fixture.Write(t, writer, fixture.Resource("before the end", "v"))
	fixture.Eventually(t, "the handle waits for the end of the silence", func() bool { return len(n.signal) == 0 })
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	receive(n.name)
}

// TestNotificationsAreNotDurable checks that a notification does not wait for a disk or a standby.
func TestNotificationsAreNotDurable(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	sql, channel := newStatements("any"), server.Schema(t)
	conn, listener := server.Connect(t), server.Connect(t)
	if _, err := listener.Exec(ctx, sql.announceListener, channel); err != nil {
		t.Fatal(err)
	}
	for name, arguments := range map[string][]any{sql.notify: {channel, "payload"}, sql.notifyListeners: {channel, "payload", 0}} {
		tx, err := conn.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec(ctx, name, arguments...); err != nil {
			t.Fatal(err)
		}
		var setting string
		if err := tx.QueryRow(ctx, "show synchronous_commit").Scan(&setting); err != nil || setting != "off" {
			t.Errorf("%s: synchronous_commit is %s, %v; expected off", name, setting, err)
		}
		if err := tx.Rollback(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestListenersAreFoundByTheirLock searches for listeners: there is none, only that of the handle itself, only a session that holds the
// lock exclusively, or one of another handle. Without any, the locks of the server are not searched.
func TestListenersAreFoundByTheirLock(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	sql, channel := newStatements("any"), server.Schema(t)
	conn, listener, foreign := server.Connect(t), server.Connect(t), server.Connect(t)
	exec := func(on *pgx.Conn, text string, arguments ...any) int64 {
		t.Helper()
		tag, err := on.Exec(ctx, text, arguments...)
		if err != nil {
			t.Fatal(err)
		}
		return tag.RowsAffected()
	}
	own := listener.PgConn().PID()
	expect := func(what string, notified, searched bool) {
		t.Helper()
		rows, _ := conn.Query(ctx, "explain (analyze) "+sql.notifyListeners, channel, "payload", own)
		lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Fatal(err)
		}
		isSearch := func(line string) bool {
			return strings.Contains(line, "pg_lock_status") && !strings.Contains(line, "never executed")
		}
		if found := slices.ContainsFunc(lines, isSearch); found != searched {
			t.Errorf("%s: searched the locks: %v, expected %v", what, found, searched)
		}
		if rows := exec(conn, sql.notifyListeners, channel, "payload", own); rows > 0 != notified {
			t.Errorf("%s: notified: %v, expected %v", what, rows > 0, notified)
		}
	}
	expect("no listener", false, false)
	exec(listener, sql.announceListener, channel)
	expect("the own listener", false, true)
	exec(foreign, sql.announceListener, channel)
	expect("another listener", true, true)
	exec(foreign, "select pg_advisory_unlock_all()")
	exec(listener, "select pg_advisory_unlock_all()")
	expect("no listener any more", false, false)
	exec(foreign, "select pg_advisory_lock(hashtextextended($1, 0))", channel)
	expect("an exclusive lock", false, true)
}

// TestBookmarkDuringABurst requests a bookmark from a watch whose feed gathers for an hour.
func TestBookmarkDuringABurst(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	url := server.StoreURL(t, "poll=1h", "latency=1h")
	reader, writer := openHandle(t, ctx, url), openHandle(t, ctx, url)
	w := fixture.WatchChanges(t, reader)
	silenced(reader)
	silenced(writer)
	written := map[string]bool{}
	for i := range 3 {
		written[fixture.Write(t, writer, fixture.Resource(fmt.Sprintf("before-%d", i), "v")).Version] = true
		if err := w.(storage.Bookmarker).Bookmark(ctx); err != nil {
			t.Fatal(err)
		}
		for event := fixture.Next(t, w); event.GetBookmark() == nil; event = fixture.Next(t, w) {
			delete(written, event.GetUpsert().GetResource().GetVersion())
		}
		if len(written) > 0 {
			t.Fatal("the bookmark came before an acknowledged event")
		}
	}
}
