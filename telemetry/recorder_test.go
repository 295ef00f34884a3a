package telemetry_test

import (
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"

	"github.com/ashlar-dev/storage/internal/test/reports"
	"github.com/ashlar-dev/storage/telemetry"
)

// TestSeriesBesideCollection makes series while metrics are collected, which the race detector checks.
func TestSeriesBesideCollection(t *testing.T) {
	t.Parallel()
	all := reports.New()
	r := telemetry.New(all.Options, "test", "test")
	defer r.Close()
	r.Observe(telemetry.HistorySize, func(observe func(float64, ...attribute.KeyValue)) { observe(1) })
	var calls sync.WaitGroup
	for range 4 {
		calls.Go(func() {
			for range 50 {
				r.Series(telemetry.Retries).Add(t.Context(), 1)
				all.Values(t, telemetry.HistorySize)
			}
		})
	}
	calls.Wait()
	if n := all.Total(t, telemetry.Retries); n != 200 {
		t.Errorf("%v retries, expected 200", n)
	}
}
