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

// startRecording starts the recording of what a handle does.
func (d *database) startRecording() {
	d.Recorder = telemetry.New(d.options.Telemetry, "sqlite", d.path)
	d.batchSizes = d.Series(telemetry.BatchSize, attribute.String(telemetry.OperationName, telemetry.Write.String()))
	d.Observe(telemetry.HistorySize, func(observe func(float64, ...attribute.KeyValue)) {
		if changes := d.changes.Load(); changes > 0 {
			observe(float64(changes))
		}
	})
	pool := attribute.String(telemetry.ConnectionPool, "readers")
	d.Observe(telemetry.ConnectionCount, func(observe func(float64, ...attribute.KeyValue)) {
		idle := len(d.readers.free)
		observe(float64(idle), pool, attribute.String(telemetry.ConnectionState, "idle"))
		observe(float64(cap(d.readers.slots)-len(d.readers.slots)-idle), pool, attribute.String(telemetry.ConnectionState, "used"))
	})
	d.Observe(telemetry.ConnectionMax, func(observe func(float64, ...attribute.KeyValue)) {
		observe(float64(cap(d.readers.slots)), pool)
	})
}
