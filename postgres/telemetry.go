package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"

	"github.com/ashlar-dev/storage/telemetry"
)

// recorder records the reports that only this adapter can make. The zero value records nothing.
type recorder struct {
	*telemetry.Recorder
	retries, lost, applied, notApplied *telemetry.Series

	lag     telemetry.Lag
	stall   atomic.Pointer[stall]   // nil while no commit blocks the feed
	history atomic.Pointer[horizon] // nil before the first run of retention
}

// stall is a pending commit that blocks the feed.
type stall struct {
	since time.Time
	pid   int    // of the session, 0 if it is unknown
	event string // what the session waits for
}

// horizon is the oldest readable state, as retention has read it.
type horizon struct {
	readAt  time.Time
	age     time.Duration
	changes int64
}

// start starts the recording of what a handle does.
func (r *recorder) start(opts *Options, pool *pgxpool.Pool) {
	// The semantic conventions join the names of the database and of the schema.
	r.Recorder = telemetry.New(opts.Telemetry, "postgresql", pool.Config().ConnConfig.Database+"|"+opts.Schema)
	r.retries, r.lost = r.Series(telemetry.Retries), r.Series(telemetry.LostAnswers)
	r.applied = r.Series(telemetry.SettledWrites, attribute.String(telemetry.Outcome, "applied"))
	r.notApplied = r.Series(telemetry.SettledWrites, attribute.String(telemetry.Outcome, "not_applied"))
}

// observe observes the gauges of a handle.
func (r *recorder) observe(d *database) {
	r.Observe(telemetry.FeedLag, func(observe func(float64, ...attribute.KeyValue)) { observe(r.lag.Duration().Seconds()) })
	r.Observe(telemetry.FeedBlocked, func(observe func(float64, ...attribute.KeyValue)) {
		if s := r.stall.Load(); s != nil {
			observe(time.Since(s.since).Seconds(), attribute.Int(telemetry.SessionPID, s.pid))
		}
	})
	r.Observe(telemetry.HistorySize, func(observe func(float64, ...attribute.KeyValue)) {
		if h := r.history.Load(); h != nil {
			observe(float64(h.changes))
		}
	})
	r.Observe(telemetry.HorizonAge, func(observe func(float64, ...attribute.KeyValue)) {
		if h := r.history.Load(); h != nil {
			observe((h.age + time.Since(h.readAt)).Seconds())
		}
	})
	pools := map[string]*pgxpool.Pool{"main": d.main, "feed": d.side}
	if d.replica != nil {
		pools["replica"] = d.replica.pool
	}
	r.Observe(telemetry.ConnectionCount, func(observe func(float64, ...attribute.KeyValue)) {
		for name, pool := range pools {
			stat := pool.Stat()
			observe(float64(stat.AcquiredConns()), attribute.String(telemetry.ConnectionPool, name), attribute.String(telemetry.ConnectionState, "used"))
			observe(float64(stat.IdleConns()), attribute.String(telemetry.ConnectionPool, name), attribute.String(telemetry.ConnectionState, "idle"))
		}
	})
	r.Observe(telemetry.ConnectionMax, func(observe func(float64, ...attribute.KeyValue)) {
		for name, pool := range pools {
			observe(float64(pool.Stat().MaxConns()), attribute.String(telemetry.ConnectionPool, name))
		}
	})
}

// batchSizes returns the series of the sizes of batches of an operation.
func (d *database) batchSizes(operation telemetry.Operation) *telemetry.Series {
	return d.telemetry.Series(telemetry.BatchSize, attribute.String(telemetry.OperationName, operation.String()))
}

// countLost counts and logs attempts whose answer was lost.
func (r *recorder) countLost(ctx context.Context, attempts int, cause error) {
	r.lost.Add(ctx, float64(attempts))
	r.Logger().InfoContext(ctx, "the answer to a write was lost", "writes", attempts, "error", cause)
}

// reportAfter is how long a commit blocks the feed before it is reported.
const reportAfter = time.Second

// reportStall reports the commit that blocks the feed, if it has done so for some time, or the end of a reported stall.
func (r *run) reportStall(ctx context.Context) {
	reported := r.telemetry.stall.Load()
	switch {
	case r.stallStart.IsZero():
		r.endStall(ctx)
	case r.telemetry.Recorder == nil || time.Since(r.stallStart) < reportAfter:
	case reported == nil || time.Since(r.stallReadAt) > reportAfter:
		now := stall{since: r.stallStart}
		r.stallReadAt = time.Now()
		err := r.source.poll(ctx, r.side, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, r.sql.pendingWriter).Scan(&now.pid, &now.event)
		})
		r.telemetry.stall.Store(&now)
		if err == nil && (reported == nil || reported.pid != now.pid) {
			r.telemetry.Logger().WarnContext(ctx, "a pending commit blocks the feed",
				telemetry.SessionPID, now.pid, "waits for", now.event, "after revision", r.at.revision)
		}
	}
}

// endStall records that no commit blocks the feed.
func (r *run) endStall(ctx context.Context) {
	if reported := r.telemetry.stall.Swap(nil); reported != nil {
		r.telemetry.Logger().InfoContext(ctx, "the feed is not blocked any more",
			telemetry.SessionPID, reported.pid, "after", time.Since(reported.since))
	}
}
