package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Recorder records the metrics, the log and the traces of one handle. All methods may be called on a nil Recorder, which records nothing,
// and by several goroutines.
type Recorder struct {
	logger *slog.Logger
	meter  metric.Meter
	tracer trace.Tracer

	store      []attribute.KeyValue // of all series
	counters   map[*Metric]metric.Float64Counter
	histograms map[*Metric]metric.Float64Histogram
	calls      [][]*Series // by operation and type of error
	spans      []trace.SpanStartOption

	mu     sync.Mutex
	gauges []metric.Registration
}

// New returns a Recorder for a handle of a store, or nil if the options receive nothing. System is the value of db.system.name, and
// namespace that of db.namespace, which names the store without credentials.
func New(o Options, system, namespace string) *Recorder {
	if o.Logger == nil && o.Meter == nil && o.Tracer == nil {
		return nil
	}
	r := &Recorder{logger: o.Logger, meter: o.Meter, tracer: o.Tracer}
	r.store = []attribute.KeyValue{attribute.String(SystemName, system), attribute.String(Namespace, namespace)}
	if r.logger == nil {
		r.logger = slog.New(slog.DiscardHandler)
	}
	r.logger = r.logger.With(SystemName, system, Namespace, namespace)
	if r.meter != nil {
		r.createInstruments()
	}
	if r.tracer != nil {
		r.spans = make([]trace.SpanStartOption, operationCount)
		for op := range operationCount {
			r.spans[op] = trace.WithAttributes(r.with(attribute.String(OperationName, op.String()))...)
		}
	}
	return r
}

// createInstruments creates the instruments that are not gauges, and the series of calls.
func (r *Recorder) createInstruments() {
	r.counters, r.histograms = map[*Metric]metric.Float64Counter{}, map[*Metric]metric.Float64Histogram{}
	for _, m := range Metrics() {
		switch m.Kind {
		case Counter:
			c, err := r.meter.Float64Counter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
			r.check(m, err)
			r.counters[m] = c
		case Histogram:
			h, err := r.meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description),
				metric.WithExplicitBucketBoundaries(m.buckets...))
			r.check(m, err)
			r.histograms[m] = h
		case Gauge, UpDownCounter: // created by Observe
		}
	}
	r.calls = make([][]*Series, operationCount)
	for op := range operationCount {
		r.calls[op] = make([]*Series, len(errorTypes))
		for i, e := range errorTypes {
			attrs := []attribute.KeyValue{attribute.String(OperationName, op.String())}
			if e.name != "" {
				attrs = append(attrs, attribute.String(ErrorType, e.name))
			}
			r.calls[op][i] = r.Series(OperationDuration, attrs...)
		}
	}
}

// check logs an error of the Meter, which still returns a usable instrument.
func (r *Recorder) check(m *Metric, err error) {
	if err != nil {
		r.logger.Warn("the meter refused a metric", "metric", m.Name, "error", err)
	}
}

var discard = slog.New(slog.DiscardHandler)

// Logger returns the logger of the handle, which may discard all records.
func (r *Recorder) Logger() *slog.Logger {
	if r == nil {
		return discard
	}
	return r.logger
}

// Series is a counter or a histogram with fixed attributes. A nil Series records nothing.
type Series struct {
	counter   metric.Float64Counter
	histogram metric.Float64Histogram
	add       []metric.AddOption
	record    []metric.RecordOption
}

// Series returns the series of a counter or of a histogram that has these attributes.
func (r *Recorder) Series(m *Metric, attrs ...attribute.KeyValue) *Series {
	if r == nil || r.meter == nil {
		return nil
	}
	fixed := metric.WithAttributeSet(attribute.NewSet(r.with(attrs...)...))
	return &Series{r.counters[m], r.histograms[m], []metric.AddOption{fixed}, []metric.RecordOption{fixed}}
}

// with returns the attributes of the store and others, as a new slice: the SDK sorts what it is given.
func (r *Recorder) with(attrs ...attribute.KeyValue) []attribute.KeyValue {
	return slices.Concat(r.store, attrs)
}

// Add adds a value to a counter, or a measurement to a histogram.
func (s *Series) Add(ctx context.Context, value float64) {
	switch {
	case s == nil:
	case s.histogram != nil:
		s.histogram.Record(ctx, value, s.record...)
	default:
		s.counter.Add(ctx, value, s.add...)
	}
}

// Observe calls read whenever metrics are collected, until Close. The function passes the values of a gauge, or of an updowncounter, to observe, each with
// attributes that no other value has. It must not block.
func (r *Recorder) Observe(m *Metric, read func(observe func(value float64, attrs ...attribute.KeyValue))) {
	if r == nil || r.meter == nil {
		return
	}
	var observed metric.Float64Observable
	var err error
	if m.Kind == UpDownCounter {
		observed, err = r.meter.Float64ObservableUpDownCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
	} else {
		observed, err = r.meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
	}
	r.check(m, err)
	registration, err := r.meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		read(func(value float64, attrs ...attribute.KeyValue) {
			o.ObserveFloat64(observed, value, metric.WithAttributes(r.with(attrs...)...))
		})
		return nil
	}, observed)
	r.check(m, err)
	if err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gauges = append(r.gauges, registration)
}

// Close ends the calls of the functions of Observe.
func (r *Recorder) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, registration := range r.gauges {
		r.check(OperationDuration, registration.Unregister())
	}
	r.gauges = nil
}
