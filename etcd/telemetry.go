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
	retries, lostAnswers, appliedWrites, unappliedWrites *telemetry.Series

	lag               telemetry.Lag
	publishedRevision atomic.Int64 // the last revision that the feed has published; 0 while it does not run
}

// start creates the recorder of a handle. newest is the newest revision that the handle knows.
func (r *recorder) start(opts *Options, newest *atomic.Int64) {
	r.Recorder = telemetry.New(opts.Telemetry, "etcd", opts.Prefix)
	r.retries, r.lostAnswers = r.Series(telemetry.Retries), r.Series(telemetry.LostAnswers)
	r.appliedWrites = r.Series(telemetry.SettledWrites, attribute.String(telemetry.Outcome, "applied"))
	r.unappliedWrites = r.Series(telemetry.SettledWrites, attribute.String(telemetry.Outcome, "not_applied"))
	r.Observe(telemetry.FeedLag, func(observe func(float64, ...attribute.KeyValue)) {
		if published := r.publishedRevision.Load(); published != 0 {
			r.lag.Update(published, newest.Load(), time.Now())
		}
		observe(r.lag.Duration().Seconds())
	})
}

// batchSizes returns the series of the sizes of batches of an operation.
func (r *recorder) batchSizes(operation telemetry.Operation) *telemetry.Series {
	return r.Series(telemetry.BatchSize, attribute.String(telemetry.OperationName, operation.String()))
}

// countSettled counts a write with a lost answer whose outcome was determined.
func (r *recorder) countSettled(ctx context.Context, applied bool) {
	if applied {
		r.appliedWrites.Add(ctx, 1)
	} else {
		r.unappliedWrites.Add(ctx, 1)
	}
}

// endFeed records that the feed does not run any more.
func (r *recorder) endFeed() {
	r.publishedRevision.Store(0)
	r.lag.Reset()
}
