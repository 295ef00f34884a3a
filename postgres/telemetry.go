package postgres

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/attribute"

	"github.com/ashlar-dev/storage/telemetry"
)

// recorder records the reports that only this adapter can make. The zero value records nothing.
type recorder struct {
	*telemetry.Recorder
	retries, lostAnswers, appliedWrites, unappliedWrites *telemetry.Series

	lag     telemetry.Lag
	stall   atomic.Pointer[stall]   // nil while no commit blocks the feed
	history atomic.Pointer[horizon] // nil before the first run of retention
}

// stall is a pending commit that blocks the feed.
type stall struct {
	since, readAt time.Time
	pid           int // of the session, 0 if it is unknown
}

// horizon is the oldest readable state, as retention has read it.
type horizon struct {
	readAt  time.Time
	age     time.Duration
	changes int64
}

// start creates the recorder of a handle.
func (r *recorder) start(opts *Options, pool *pgxpool.Pool) {
	// The semantic conventions join the names of the database and of the schema.
	r.Recorder = telemetry.New(opts.Telemetry, "postgresql", pool.Config().ConnConfig.Database+"|"+opts.Schema)
	r.retries, r.lostAnswers = r.Series(telemetry.Retries), r.Series(telemetry.LostAnswers)
	r.appliedWrites = r.Series(telemetry.SettledWrites, attribute.String(telemetry.Outcome, "applied"))
	r.unappliedWrites = r.Series(telemetry.SettledWrites, attribute.String(telemetry.Outcome, "not_applied"))
}

// observe observes the gauges of a handle with these pools of connections.
func (r *recorder) observe(pools map[string]*pgxpool.Pool) {
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
func (r *recorder) batchSizes(operation telemetry.Operation) *telemetry.Series {
	return r.Series(telemetry.BatchSize, attribute.String(telemetry.OperationName, operation.String()))
}

// countLost counts and logs attempts whose answer was lost.
func (r *recorder) countLost(ctx context.Context, attempts int, cause error) {
	r.lostAnswers.Add(ctx, float64(attempts))
	r.Logger().InfoContext(ctx, "the answer to a write was lost", "writes", attempts, "error", cause)
}

// noteHolder is the session whose note blocks the history. Any role of the database can take a note.
type noteHolder struct {
	pid   int    // of its server process
	event string // that it waits for
	role  string
}

// reportAfter is how long a commit blocks the feed before it is reported, and how long a report is valid.
const reportAfter = time.Second

// reportStall reports the commit that has blocked the feed since a time, after a revision. A zero time is the end of the stall. read returns
// the commit's session.
func (r *recorder) reportStall(ctx context.Context, since time.Time, revision int64, read func() (noteHolder, error)) {
	if since.IsZero() {
		r.endStall(ctx)
		return
	}
	reported := r.stall.Load()
	if r.Recorder == nil || time.Since(since) < reportAfter || reported != nil && time.Since(reported.readAt) < reportAfter {
		return
	}
	w, err := read()
	r.stall.Store(&stall{since: since, readAt: time.Now(), pid: w.pid})
	if err == nil && (reported == nil || reported.pid != w.pid) {
		r.Logger().WarnContext(ctx, "a pending commit blocks the feed",
			telemetry.SessionPID, w.pid, "waits for", w.event, "role", w.role, "after revision", revision)
	}
}

// endStall records that no commit blocks the feed.
func (r *recorder) endStall(ctx context.Context) {
	if reported := r.stall.Swap(nil); reported != nil {
		r.Logger().InfoContext(ctx, "the feed is not blocked any more", telemetry.SessionPID, reported.pid, "after", time.Since(reported.since))
	}
}
