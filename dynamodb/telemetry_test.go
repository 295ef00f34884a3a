package dynamodb_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/dynamodb"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/reports"
	"github.com/ashlar-dev/storage/telemetry"
)

// The store reports what docs/metrics.md lists, and the capacity units that Options.Spent receives.
func TestMetrics(t *testing.T) {
	t.Parallel()
	r := reports.New()
	spent := make(chan float64, 1000)
	b := handle(t, dynamofake.New(t), func(o *dynamodb.Options) {
		o.Telemetry, o.Spent = r.Options, func(units float64) { spent <- units }
	})
	fixture.WatchChanges(t, b)
	written := fixture.Write(t, b, box("a", nil))
	for range 2 {
		if _, err := b.Read(t.Context(), storage.StrongConsistency, written.Id); err != nil {
			t.Fatal(err)
		}
	}
	if missing := r.Missing(t, "DynamoDB"); len(missing) > 0 {
		t.Errorf("no values of %v", missing)
	}
	total := 0.0
	fixture.Eventually(t, "the units of Options.Spent in the metric", func() bool {
		for {
			select {
			case units := <-spent:
				total += units
				continue
			default:
			}
			return total > 0 && r.Total(t, telemetry.Capacity) == total
		}
	})
}
