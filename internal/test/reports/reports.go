// Package reports collects the metrics, the log and the spans of a store in tests.
package reports

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/ashlar-dev/storage/telemetry"
)

// Reports receives what a store reports.
type Reports struct {
	// Options are for the store.
	Options telemetry.Options
	// Spans has the spans that have ended.
	Spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	log    buffer
}

// New returns a receiver without any reports.
func New() *Reports {
	r := &Reports{reader: sdkmetric.NewManualReader(), Spans: tracetest.NewSpanRecorder()}
	r.Options = telemetry.Options{
		Logger: slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Meter:  sdkmetric.NewMeterProvider(sdkmetric.WithReader(r.reader)).Meter("test"),
		Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.Spans)).Tracer("test"),
	}
	return r
}

// Context returns a context for storage.Open.
func (r *Reports) Context(ctx context.Context) context.Context {
	return telemetry.NewContext(ctx, r.Options)
}

// Log returns the text of the log.
func (r *Reports) Log() string { return r.log.String() }

// Value is a series of a metric.
type Value struct {
	Attributes attribute.Set
	Value      float64 // of a histogram, its count
	Sum        float64 // of a histogram
}

// Values returns the series of a metric that have these attributes, each written as name=value.
func (r *Reports) Values(t testing.TB, m *telemetry.Metric, attributes ...string) (values []Value) {
	t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &all); err != nil {
		t.Fatal(err)
	}
	add := func(set attribute.Set, value, sum float64) {
		for _, a := range attributes {
			name, want, _ := strings.Cut(a, "=")
			got, _ := set.Value(attribute.Key(name))
			if got.String() != want && !(want == "" && got.Type() == attribute.EMPTY) {
				return
			}
		}
		values = append(values, Value{set, value, sum})
	}
	for _, scope := range all.ScopeMetrics {
		i := slices.IndexFunc(scope.Metrics, func(found metricdata.Metrics) bool { return found.Name == m.Name })
		if i < 0 {
			continue
		}
		switch data := scope.Metrics[i].Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, float64(p.Count), p.Sum)
			}
		case metricdata.Sum[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value, 0)
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				add(p.Attributes, p.Value, 0)
			}
		default:
			t.Fatalf("the metric %s has data of the type %T", m.Name, data)
		}
	}
	return values
}

// Total returns the sum of the series of a metric that have these attributes.
func (r *Reports) Total(t testing.TB, m *telemetry.Metric, attributes ...string) (total float64) {
	t.Helper()
	for _, v := range r.Values(t, m, attributes...) {
		total += v.Value
	}
	return total
}

// Missing returns the gauges, batch sizes and calls that docs/metrics.md promises for a store, and that it does not report. A store
// without stalls reports none, and neither does a handle that is no relay.
func (r *Reports) Missing(t testing.TB, store string) (names []string) {
	t.Helper()
	for _, m := range telemetry.Metrics() {
		expected := m == telemetry.OperationDuration || m == telemetry.BatchSize || m == telemetry.Capacity ||
			(m.Kind == telemetry.Gauge || m.Kind == telemetry.UpDownCounter) && m != telemetry.FeedBlocked && m != telemetry.RelaySubscribers
		switch got := len(r.Values(t, m)) > 0; {
		case slices.Contains(m.Stores, store) && expected && !got:
			names = append(names, m.Name)
		case !slices.Contains(m.Stores, store) && got:
			t.Errorf("%s reports %s, but docs/metrics.md does not list it there", store, m.Name)
		}
	}
	return names
}

// buffer is a bytes.Buffer for concurrent use.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
