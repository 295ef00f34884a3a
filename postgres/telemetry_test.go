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
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/reports"
	"github.com/ashlar-dev/storage/telemetry"
)

// openReporting opens a store that reports.
func openReporting(t *testing.T, ctx context.Context, storeURL string) (*Backend, *reports.Reports) {
	t.Helper()
	r := reports.New()
	b, err := storage.Open(r.Context(ctx), storeURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b.(*Backend), r
}

// A commit of another session that stalls blocks the feed. The metrics and the log name the server process of that session, and the lag
// grows until the commit.
func TestStallIsReported(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	storeURL := server.StoreURL(t)
	other := openHandle(t, ctx, storeURL)
	b, r := openReporting(t, ctx, storeURL)
	w := fixture.WatchChanges(t, b)
	defer w.Close()

	stopped := fixture.Resource("stopped", "v")
	m, err := newWrite(key.Of(stopped.Id), stopped)
	if err != nil {
		t.Fatal(err)
	}
	conn := server.Connect(t)
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := other.handle.sender.apply(ctx, conn, &attempt{lock: 1, expires: time.Now().Add(time.Hour)}, []*mutation{m}, false); err != nil {
		t.Fatal(err)
	}
	fixture.Write(t, other, fixture.Resource("behind", "v"))

	pid := fmt.Sprint(conn.PgConn().PID())
	fixture.Eventually(t, "the stall to be reported", func() bool {
		log := r.Log()
		return len(r.Values(t, telemetry.FeedBlocked, telemetry.SessionPID+"="+pid)) == 1 &&
			strings.Contains(log, "level=WARN") && strings.Contains(log, telemetry.SessionPID+"="+pid)
	})
	if lag := r.Total(t, telemetry.FeedLag); lag <= 0 {
		t.Errorf("the feed lags by %v s, expected more", lag)
	}
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		fixture.Next(t, w)
	}
	fixture.Eventually(t, "the end of the stall", func() bool {
		return len(r.Values(t, telemetry.FeedBlocked)) == 0 && r.Total(t, telemetry.FeedLag) == 0 && strings.Contains(r.Log(), "the feed is not blocked any more")
	})
}

// A write whose request or answer is lost is counted, and so is its outcome. The caller gets no error, so no outcome is unknown.
func TestLostAnswersAreReported(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	schema := server.Schema(t)
	proxy := faultproxy.New(t, server.Addr)
	openHandle(t, ctx, server.StoreURLIn(t, schema))
	b, r := openReporting(t, ctx, server.At(t, proxy.Addr()).StoreURLIn(t, schema))
	for name, cut := range map[string]func([]byte) *faultproxy.Trap{"request": proxy.CutRequest, "answer": proxy.CutAnswer} {
		payload := "payload of " + name
		cut([]byte(payload))
		fixture.Write(t, b, fixture.Resource(name, payload))
	}
	// The server may roll back a statement whose answer it cannot send, so the second one may not be applied either.
	lost, settled := r.Total(t, telemetry.LostAnswers), r.Total(t, telemetry.SettledWrites)
	if lost < 2 || settled != lost {
		t.Errorf("%v answers were lost and %v outcomes determined, expected 2 or more, and as many", lost, settled)
	}
	if n := r.Total(t, telemetry.SettledWrites, telemetry.Outcome+"=not_applied"); n < 1 {
		t.Error("no lost request was settled as not applied")
	}
	if n := r.Total(t, telemetry.OperationDuration, "error.type=inconsistent"); n != 0 {
		t.Errorf("%v outcomes are unknown, expected none", n)
	}
	if n := r.Total(t, telemetry.BatchSize, telemetry.OperationName+"=write"); n < 2 {
		t.Errorf("%v batches of writes, expected 2 or more", n)
	}
	if n := r.Total(t, telemetry.ConnectionCount, telemetry.ConnectionPool+"=main"); n < 1 {
		t.Errorf("%v connections, expected 1 or more", n)
	}
	if n := r.Total(t, telemetry.ConnectionMax, telemetry.ConnectionPool+"=main"); n != defaultConns {
		t.Errorf("at most %v connections, expected %v", n, defaultConns)
	}
}

// A write that the database does not answer until the deadline is an unknown outcome, in the metrics and in the log.
func TestUnknownOutcomeIsReported(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	b, r := openReporting(t, ctx, server.StoreURL(t))
	written := fixture.Write(t, b, fixture.Resource("locked", "v"))
	tx, err := server.Connect(t).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, b.handle.database.sql.withNames("select from $resources for update")); err != nil {
		t.Fatal(err)
	}
	if _, err := b.WriteCAS(fixture.CallTimeout(ctx, t, 300*time.Millisecond), written); !errors.Is(err, storage.ErrInconsistent) {
		t.Fatal(err)
	}
	if err := tx.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if n := r.Total(t, telemetry.OperationDuration, "db.operation.name=write", "error.type=inconsistent"); n != 1 {
		t.Errorf("%v outcomes are unknown, expected 1", n)
	}
	if log := r.Log(); !strings.Contains(log, "level=WARN msg=\"a write may or may not have been applied\"") {
		t.Errorf("log: %s", log)
	}
}

// Runs of retention are counted, failed ones with their error, and report the size and the age of the history.
func TestRetentionIsReported(t *testing.T) {
	t.Parallel()
	ctx := fixture.Context(t)
	server := env.Postgres(t)
	r := reports.New()
	u, err := url.Parse(server.StoreURL(t))
	if err != nil {
		t.Fatal(err)
	}
	at, err := parseURL(u)
	if err != nil {
		t.Fatal(err)
	}
	at.opts.forgetful = time.Second
	b, err := at.open(r.Context(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	for i := range 3 {
		fixture.Write(t, b, fixture.Resource(fmt.Sprint(i), "v"))
	}
	fixture.Eventually(t, "a horizon", func() bool {
		return r.Total(t, telemetry.RetentionDuration, "error.type=") > 0 && r.Total(t, telemetry.HistorySize) > 0 && r.Total(t, telemetry.HorizonAge) > 0
	})
	fixture.WatchChanges(t, b)
	if _, err := b.Read(ctx, storage.StrongConsistency, fixture.Resource("0", "v").Id); err != nil {
		t.Fatal(err)
	}
	if missing := r.Missing(t, "Postgres"); len(missing) > 0 {
		t.Errorf("no values of %v", missing)
	}
	if n := r.Total(t, telemetry.RetentionDuration, "error.type=_OTHER"); n != 0 {
		t.Errorf("%v failed runs, expected none", n)
	}
	if _, err := b.handle.database.main.Exec(ctx, b.handle.database.sql.withNames("drop table $marks")); err != nil {
		t.Fatal(err)
	}
	fixture.Eventually(t, "a failed run", func() bool { return r.Total(t, telemetry.RetentionDuration, "error.type=_OTHER") > 0 })
	if log := r.Log(); !strings.Contains(log, "level=WARN msg=\"old changes could not be discarded\"") {
		t.Errorf("log: %s", log)
	}
}
