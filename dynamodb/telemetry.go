package dynamodb

import (
	"strings"

	"go.opentelemetry.io/otel/attribute"

	"github.com/ashlar-dev/storage/telemetry"
)

// recorder records the reports that only this adapter can make. The zero value records nothing.
type recorder struct {
	*telemetry.Recorder
	retries, units, readSizes *telemetry.Series

	lag telemetry.Lag
}

// start creates the recorder of a handle.
func (r *recorder) start(o *Options) {
	r.Recorder = telemetry.New(o.Telemetry, "aws.dynamodb", strings.TrimSuffix(o.Table+"/"+o.Prefix, "/"))
	r.retries, r.units = r.Series(telemetry.Retries), r.Series(telemetry.Capacity)
	r.Observe(telemetry.FeedLag, func(observe func(float64, ...attribute.KeyValue)) { observe(r.lag.Duration().Seconds()) })
	r.readSizes = r.Series(telemetry.BatchSize, attribute.String(telemetry.OperationName, telemetry.Read.String()))
}
