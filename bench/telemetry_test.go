package bench

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/telemetry"
)

// reported compares a handle that reports nothing with one that has a log from level Info and all metrics. Both handles use the same store.
func reported(b *testing.B, name, url string, callers int, server func() time.Duration) {
	if !selected(name + "/reported") {
		return
	}
	reader := metric.NewManualReader()
	ctx := telemetry.NewContext(context.Background(), telemetry.Options{
		Logger: slog.New(slog.NewTextHandler(b.Output(), nil)),
		Meter:  metric.NewMeterProvider(metric.WithReader(reader)).Meter("bench"),
	})
	reporting := must(storage.Open(ctx, url))
	b.Cleanup(func() { reporting.Close() })
	silent := fill(b, open(b, url), name+"-silent", callers, 500)
	ours := fill(b, reporting, name+"-reported", callers, 500)
	comparison{backend: name, what: "reported-write", callers: []int{callers}, server: server}.run(b, side{"silent", silent.write}, side{"reported", ours.write})
	comparison{backend: name, what: "reported-read", callers: []int{callers}, server: server}.run(b, side{"silent", silent.read}, side{"reported", ours.read})
}
