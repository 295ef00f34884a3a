package serve

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"

	"github.com/ashlar-dev/storage/service/web"
)

// headerTimeout is how long a client may take to send the headers of a request, and idleTimeout how long a connection may lie idle.
const (
	headerTimeout = 10 * time.Second
	idleTimeout   = 2 * time.Minute
)

// newHTTP returns an HTTP server for a handler. With clients it demands certificates of them, if the configuration does.
func (s *server) newHTTP(handler http.Handler, clients bool) *http.Server {
	h := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug), // such as failed handshakes of strangers
	}
	if s.certificates != nil {
		h.TLSConfig = s.certificates.config(clients, "h2", "http/1.1")
	}
	return h
}

// serveHTTP serves until the server is shut down.
func serveHTTP(h *http.Server, l net.Listener) error {
	if h.TLSConfig != nil {
		return h.ServeTLS(l, "", "")
	}
	return h.Serve(l)
}

// api is what is served below /api.
func (s *server) api() http.Handler {
	h := http.StripPrefix("/api", web.NewHandler(s.resources.Client(), s.types, nil))
	log := requestLog{s.config.Logger}
	h = s.calls.handler(s.metrics.handler(log.handler(guard{metrics: s.metrics, log: log}.handler(h))))
	if s.traces == nil {
		return h
	}
	return otelhttp.NewHandler(h, "http", otelhttp.WithTracerProvider(s.traces))
}

// addAdmin adds metrics and probes to a mux.
func (s *server) addAdmin(mux *http.ServeMux) {
	mux.Handle("GET /metrics", s.metrics.page())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { say(w, http.StatusOK, "the process runs") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.ready.check(r.Context()); err != nil {
			say(w, http.StatusServiceUnavailable, "not ready: "+s.unreadiness(r.Context(), err))
			return
		}
		say(w, http.StatusOK, "ready")
	})
}

// unreadiness returns what strangers are told of why the server is not ready, and logs the rest.
func (s *server) unreadiness(ctx context.Context, err error) string {
	if errors.Is(err, errDraining) {
		return err.Error()
	}
	s.config.Logger.WarnContext(ctx, "not ready", "error", err)
	return "the store does not answer"
}

func say(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n") // whoever asked may have gone
}
