package serve

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"runtime/debug"

	grpcprom "github.com/grpc-ecosystem/go-grpc-middleware/providers/prometheus"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/expiry"
)

// metrics holds the metrics of the server and of its store: of the process, of gRPC calls and of HTTP requests.
type metrics struct {
	registry       *prometheus.Registry
	store          metric.Meter
	grpc           *grpcprom.ServerMetrics
	streams        prometheus.Gauge
	panics         prometheus.Counter
	stalledClients prometheus.Counter
	inFlight       prometheus.Gauge
	duration       *prometheus.HistogramVec
	callers        *callerMetrics
}

func newMetrics() *metrics {
	registry := prometheus.NewRegistry()
	exporter, err := otelprom.New(otelprom.WithRegisterer(registry), otelprom.WithoutScopeInfo(), otelprom.WithoutTargetInfo(),
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes))
	if err != nil {
		panic(err) // the registry, which is new, refuses the exporter
	}
	m := &metrics{
		registry:       registry,
		store:          sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter)).Meter(instrumentation),
		grpc:           grpcprom.NewServerMetrics(grpcprom.WithServerHandlingTimeHistogram()),
		streams:        prometheus.NewGauge(prometheus.GaugeOpts{Name: "grpc_server_streams", Help: "Open streams, such as watches."}),
		panics:         prometheus.NewCounter(prometheus.CounterOpts{Name: "grpc_server_panics_total", Help: "Calls and requests that ended with a panic."}),
		stalledClients: prometheus.NewCounter(prometheus.CounterOpts{Name: "grpc_server_stalled_total", Help: "Connections closed because their client did not read."}),
		inFlight:       prometheus.NewGauge(prometheus.GaugeOpts{Name: "http_requests_in_flight", Help: "Active requests to /api."}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "http_request_duration_seconds", Help: "Duration of requests to /api; of a watch, the time that it was open.",
			Buckets: prometheus.DefBuckets,
		}, []string{"method", "code"}),
		callers: newCallerMetrics(),
	}
	m.registry.MustRegister(m.grpc, m.streams, m.panics, m.stalledClients, m.inFlight, m.duration, m.callers.requests, m.callers.refusals, m.callers.streams,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return m
}

// instrumentation is the scope of the store's metrics and spans.
const instrumentation = "github.com/ashlar-dev/storage"

// measureBuild adds the metric of a build of the program.
func (m *metrics) measureBuild(version string) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ashlar_build_info", Help: "1, with the version of the program.",
		ConstLabels: prometheus.Labels{"version": version, "go_version": runtime.Version()},
	}, func() float64 { return 1 }))
}

// measureReaper adds the metric of a reaper, which returns the number of its tombstones.
func (m *metrics) measureReaper(tombstones func() int) {
	m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "ashlar_server_reaper_tombstones", Help: "Deleted resources whose owned resources the reaper deletes or has yet to look for.",
	}, func() float64 { return float64(tombstones()) }))
}

// measureExpiry adds the metrics of an Expirer.
func (m *metrics) measureExpiry(stats func() expiry.Stats) {
	gauge := func(name, help string, read func(expiry.Stats) float64) {
		m.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return read(stats()) }))
	}
	counter := func(name, help string, read func(expiry.Stats) int64) {
		m.registry.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 { return float64(read(stats())) }))
	}
	gauge("ashlar_server_expiry_pending", "Stored resources with a time to live.", func(s expiry.Stats) float64 { return float64(s.Pending) })
	gauge("ashlar_server_expiry_overdue_seconds", "Time since the first time to live has passed whose resource is still stored.",
		func(s expiry.Stats) float64 { return s.Overdue.Seconds() })
	counter("ashlar_server_expiry_deleted_total", "Resources deleted after their time to live.", func(s expiry.Stats) int64 { return s.Deleted })
	counter("ashlar_server_expiry_failures_total", "Failed deletions of resources after their time to live.", func(s expiry.Stats) int64 { return s.Failures })
}

// handler measures the requests of an HTTP handler.
func (m *metrics) handler(next http.Handler) http.Handler {
	return promhttp.InstrumentHandlerInFlight(m.inFlight, promhttp.InstrumentHandlerDuration(m.duration, next))
}

// prometheusHandler returns the handler that Prometheus scrapes.
func (m *metrics) prometheusHandler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// stream counts the open streams.
func (m *metrics) stream(srv any, s grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	m.streams.Inc()
	defer m.streams.Dec()
	defer m.callers.openStream(principalOf(s.Context()))()
	return next(srv, s)
}

// guard prevents a panic in a call from ending the process and all other calls.
type guard struct {
	metrics *metrics
	log     requestLog
}

func (g guard) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	defer g.recoverPanic(ctx, info.FullMethod, &err)
	return next(ctx, req)
}

func (g guard) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	defer g.recoverPanic(s.Context(), info.FullMethod, &err)
	return next(srv, s)
}

// handler guards an HTTP handler. It cuts off a response that has begun, so that the client does not take it for complete.
func (g guard) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := &statusRecorder{ResponseWriter: w}
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, is := cause.(error); is && errors.Is(err, http.ErrAbortHandler) {
				panic(cause) // the handler aborts its response on purpose
			}
			g.metrics.panics.Inc()
			g.logPanic(r.Context(), r.Method+" "+truncate(r.URL.Path), cause)
			if answer.wrote {
				panic(http.ErrAbortHandler)
			}
			writeText(w, http.StatusInternalServerError, panicText)
		}()
		next.ServeHTTP(answer, r)
	})
}

// panicText is the error text for callers after a panic.
const panicText = "the server failed at this call, see its log"

// logPanic logs a panic.
func (g guard) logPanic(ctx context.Context, method string, cause any) {
	g.log.logger.ErrorContext(ctx, "a call panicked", "method", method, "cause", fmt.Sprint(cause), "stack", string(debug.Stack()))
}

func (g guard) recoverPanic(ctx context.Context, method string, err *error) {
	if cause := recover(); cause != nil {
		g.metrics.panics.Inc()
		g.logPanic(ctx, method, cause)
		*err = status.Error(codes.Internal, panicText)
	}
}
