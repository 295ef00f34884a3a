package sqlite

import (
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"

	"github.com/ashlar-dev/storage/telemetry"
)

// recorder records the reports that only this adapter can make. The zero value records nothing.
type recorder struct {
	*telemetry.Recorder
	batchSizes *telemetry.Series
	changes    atomic.Int64 // in history, after the last commit of this handle; 0 before it
}

// start creates the recorder of a handle. connections returns the numbers of idle and of all open reading connections.
func (r *recorder) start(o *Options, path string, connections func() (idle, open int)) {
	r.Recorder = telemetry.New(o.Telemetry, "sqlite", path)
	r.batchSizes = r.Series(telemetry.BatchSize, attribute.String(telemetry.OperationName, telemetry.Write.String()))
	r.Observe(telemetry.HistorySize, func(observe func(float64, ...attribute.KeyValue)) {
		if changes := r.changes.Load(); changes > 0 {
			observe(float64(changes))
		}
	})
	pool := attribute.String(telemetry.ConnectionPool, "readers")
	r.Observe(telemetry.ConnectionCount, func(observe func(float64, ...attribute.KeyValue)) {
		idle, open := connections()
		observe(float64(idle), pool, attribute.String(telemetry.ConnectionState, "idle"))
		observe(float64(open-idle), pool, attribute.String(telemetry.ConnectionState, "used"))
	})
	limit := float64(o.Readers)
	r.Observe(telemetry.ConnectionMax, func(observe func(float64, ...attribute.KeyValue)) { observe(limit, pool) })
}
