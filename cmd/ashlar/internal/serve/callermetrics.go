package serve

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc/codes"
)

// callerMetrics are the metrics of each caller. The label "caller" is the name of the caller's token, never the token itself, and empty for callers
// without one.
type callerMetrics struct {
	requests *prometheus.CounterVec
	refusals *prometheus.CounterVec
	streams  *prometheus.GaugeVec
}

func newCallerMetrics() *callerMetrics {
	return &callerMetrics{
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_server_requests_total", Help: "Finished gRPC calls and HTTP requests to /api, by the caller's token.",
		}, []string{"caller", "protocol"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "ashlar_server_refusals_total",
			Help: "Calls and requests refused because of the token (unauthenticated), a rule (permission_denied) or a limit (resource_exhausted).",
		}, []string{"caller", "reason"}),
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "ashlar_server_streams", Help: "Open gRPC streams and HTTP watches, by the caller's token.",
		}, []string{"caller"}),
	}
}

// refusalReasons are the codes of refusals, over gRPC and over HTTP.
var (
	refusalReasons = map[codes.Code]string{
		codes.Unauthenticated: "unauthenticated", codes.PermissionDenied: "permission_denied", codes.ResourceExhausted: "resource_exhausted",
	}
	httpRefusalReasons = map[int]string{
		http.StatusUnauthorized: "unauthenticated", http.StatusForbidden: "permission_denied", http.StatusRequestEntityTooLarge: "resource_exhausted",
		http.StatusTooManyRequests: "resource_exhausted",
	}
)

// count counts a finished call or request. reason is "" unless it was refused.
func (m *callerMetrics) count(caller, protocol, reason string) {
	if m == nil {
		return
	}
	if caller == anonymousName {
		caller = ""
	}
	m.requests.WithLabelValues(caller, protocol).Inc()
	if reason != "" {
		m.refusals.WithLabelValues(caller, reason).Inc()
	}
}

// openStream counts a stream until end is called.
func (m *callerMetrics) openStream(caller string) (end func()) {
	open := m.streams.WithLabelValues(caller)
	open.Inc()
	return open.Dec
}

// watches counts the watches of an HTTP handler. callerOf returns the name of a request's token.
func (m *callerMetrics) watches(next http.Handler, callerOf func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("watch") {
			defer m.openStream(callerOf(r))()
		}
		next.ServeHTTP(w, r)
	})
}
