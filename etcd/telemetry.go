package etcd

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/ashlar-dev/storage/telemetry"
)

// recorder records the reports that only this adapter can make. The zero value records nothing.
type recorder struct {
	*telemetry.Recorder
	retries, lost, applied, notApplied *telemetry.Series

	lag       telemetry.Lag
	published atomic.Int64 // the last revision that the feed has published; 0 while it does not run
}

// startRecording starts the recording of what a handle does.
func (c *conn) startRecording() {
	c.Recorder = telemetry.New(c.opts.Telemetry, "etcd", c.opts.Prefix)
	c.retries, c.lost = c.Series(telemetry.Retries), c.Series(telemetry.LostAnswers)
	c.applied = c.Series(telemetry.SettledWrites, attribute.String(telemetry.Outcome, "applied"))
	c.notApplied = c.Series(telemetry.SettledWrites, attribute.String(telemetry.Outcome, "not_applied"))
	c.Observe(telemetry.FeedLag, func(observe func(float64, ...attribute.KeyValue)) {
		if published := c.published.Load(); published != 0 {
			c.lag.Update(published, c.newestRevision.Load(), time.Now())
		}
		observe(c.lag.Duration().Seconds())
	})
}

// batchSizes returns the series of the sizes of batches of an operation.
func (c *conn) batchSizes(operation telemetry.Operation) *telemetry.Series {
	return c.Series(telemetry.BatchSize, attribute.String(telemetry.OperationName, operation.String()))
}

// countSettled counts a write with a lost answer whose outcome was determined.
func (r *recorder) countSettled(ctx context.Context, applied bool) {
	if applied {
		r.applied.Add(ctx, 1)
	} else {
		r.notApplied.Add(ctx, 1)
	}
}

// endFeed records that the feed does not run any more.
func (r *recorder) endFeed() {
	r.published.Store(0)
	r.lag.Reset()
}
