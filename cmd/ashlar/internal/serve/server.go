package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/service/web"
)

// server holds the parts of a server.
type server struct {
	config       *Config
	certificates *certificates // nil without TLS
	tokens       *tokens       // nil if all callers may do everything
	traces       *sdktrace.TracerProvider
	metrics      *metrics
	calls        calls
	handshakes   *handshakes
	ready        *readiness

	types     *registry.Registry
	resources *service.Server
	grpc      *grpc.Server
	health    *health.Server
	// healthCtx ends when watches of the health service must end. stopHealth ends it.
	healthCtx  context.Context
	stopHealth func()
	http       []*http.Server
}

// drainGrace is the time that calls have after their watches were ended and the drain time has passed.
const drainGrace = time.Second

// drain stops the server. It accepts nothing new, waits until active calls end or the drain time has passed, and then ends watches with
// Unavailable. It cuts off any call that still runs after that.
func (s *server) drain() {
	s.config.Logger.Info("draining", "for", s.config.Drain)
	s.ready.draining.Store(true)
	s.health.Shutdown()
	bound, cancel := context.WithTimeout(context.Background(), s.config.Drain)
	defer cancel()
	last, cancel := context.WithTimeout(context.Background(), s.config.Drain+drainGrace)
	defer cancel()
	s.handshakes.close()
	var all sync.WaitGroup
	all.Go(func() {
		stop := context.AfterFunc(last, s.grpc.Stop)
		defer stop()
		s.grpc.GracefulStop()
	})
	for _, h := range s.http {
		all.Go(func() {
			if h.Shutdown(last) != nil {
				_ = h.Close() // the time to shut down has passed
			}
		})
	}
	s.calls.wait(bound)
	s.resources.Drain()
	s.stopHealth()
	all.Wait()
}

// healthStream ends watches of gRPC's health service when the server drains. The health service itself only reports that the server is not
// ready.
func (s *server) healthStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod != grpc_health_v1.Health_Watch_FullMethodName {
		return next(srv, stream)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	stop := context.AfterFunc(s.healthCtx, cancel)
	defer stop()
	err := next(srv, withContext{stream, ctx})
	if s.healthCtx.Err() != nil {
		return status.Error(codes.Unavailable, errDraining.Error())
	}
	return err
}

// probeInterval is the time between two probes of the store for gRPC's health service.
const probeInterval = 10 * time.Second

// updateHealth keeps the health service in line with the probes of the store.
func (s *server) updateHealth(ctx context.Context) error {
	ticker := time.NewTicker(probeInterval)
	defer ticker.Stop()
	healthy := true
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		err := s.ready.check(ctx)
		if ctx.Err() != nil || (err == nil) == healthy {
			continue
		}
		if healthy = err == nil; healthy {
			s.config.Logger.InfoContext(ctx, "the store answers again")
			s.health.Resume()
			if s.ready.draining.Load() {
				s.health.Shutdown() // the drain began in the meantime
			}
			continue
		}
		s.config.Logger.WarnContext(ctx, "the store does not answer", "error", err)
		s.health.Shutdown()
	}
}

// reload reads the token file and the certificates again at each signal. If a file cannot be read, the previous contents stay in use.
func (s *server) reload(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.config.Reload:
		}
		read := func(name string, load func() error) {
			if err := load(); err != nil {
				s.config.Logger.ErrorContext(ctx, "not reloaded, the previous contents stay in use", "what", name, "error", err)
				return
			}
			s.config.Logger.InfoContext(ctx, "reloaded", "what", name)
		}
		if s.tokens != nil {
			read("tokens", s.tokens.load)
		}
		if s.certificates != nil {
			read("certificates", s.certificates.load)
		}
	}
}

// flushTraces sends the pending traces.
func (s *server) flushTraces() error {
	if s.traces == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), drainGrace)
	defer cancel()
	return s.traces.Shutdown(ctx)
}

// serve serves at the listeners for gRPC, HTTP and probes until ctx ends or one of them fails. The last two listeners may be nil.
func (s *server) serve(ctx context.Context, listeners []net.Listener) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx)) // ends after the drain
	defer stop()
	group, failed := errgroup.WithContext(ctx)
	where := []any{"grpc", listeners[0].Addr().String()}
	group.Go(func() error { return serveGRPC(s.grpc, listeners[0]) })
	if listeners[1] != nil {
		mux := http.NewServeMux()
		mux.Handle("/api/", s.apiHandler())
		if listeners[2] == nil {
			s.addAdmin(mux)
		}
		s.http = append(s.http, s.newHTTP(mux, true))
		where = append(where, "http", listeners[1].Addr().String())
	}
	if listeners[2] != nil {
		mux := http.NewServeMux()
		s.addAdmin(mux)
		s.http = append(s.http, s.newHTTP(mux, false))
		where = append(where, "admin", listeners[2].Addr().String())
	}
	for i, l := range nonNil(listeners[1:]) {
		group.Go(func() error {
			if err := serveHTTP(s.http[i], l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	group.Go(func() error {
		if err := reaper.New(s.resources, &reaper.Options{Logger: s.config.Logger}).Run(work); work.Err() == nil {
			return fmt.Errorf("the reaper ended: %w", err)
		}
		return nil
	})
	group.Go(func() error { return s.reload(failed) })
	group.Go(func() error { return s.updateHealth(failed) })
	group.Go(func() error {
		<-failed.Done()
		s.drain()
		stop()
		return nil
	})
	s.config.Logger.InfoContext(ctx, "listening", append(where, "tls", s.certificates != nil)...)
	if s.tokens == nil {
		s.config.Logger.WarnContext(ctx, "no token file: everyone who can reach the server may do everything")
	}
	err := group.Wait()
	s.config.Logger.InfoContext(ctx, "stopped")
	return errors.Join(err, s.flushTraces())
}

// newGRPC returns the gRPC server, without services.
func (s *server) newGRPC() *grpc.Server {
	creds := insecure.NewCredentials()
	if s.certificates != nil {
		creds = credentials.NewTLS(s.certificates.config(true, "h2"))
	}
	s.handshakes = newHandshakes(creds)
	log := requestLog{s.config.Logger}
	guard := guard{metrics: s.metrics, log: log}
	options := []grpc.ServerOption{
		grpc.Creds(s.handshakes),
		grpc.ConnectionTimeout(headerTimeout),
		grpc.MaxRecvMsgSize(maxReceived),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minPings, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.ChainUnaryInterceptor(s.calls.unary, s.metrics.grpc.UnaryServerInterceptor(), log.unary, guard.unary),
		grpc.ChainStreamInterceptor(s.metrics.grpc.StreamServerInterceptor(), s.metrics.stream, log.stream, guard.stream, s.healthStream),
	}
	if s.traces != nil {
		options = append(options, grpc.StatsHandler(otelgrpc.NewServerHandler(
			otelgrpc.WithTracerProvider(s.traces), otelgrpc.WithFilter(filters.Not(filters.HealthCheck())),
		)))
	}
	return grpc.NewServer(options...)
}

// newHTTP returns an HTTP server for a handler. If clients is set, it requires client certificates as configured.
func (s *server) newHTTP(handler http.Handler, clients bool) *http.Server {
	h := &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout,
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug), // such as failed handshakes of unknown clients
	}
	if s.certificates != nil {
		h.TLSConfig = s.certificates.config(clients, "h2", "http/1.1")
	}
	return h
}

// apiHandler returns the handler for /api.
func (s *server) apiHandler() http.Handler {
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
	mux.Handle("GET /metrics", s.metrics.prometheusHandler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeText(w, http.StatusOK, "the process runs") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		if err := s.ready.check(r.Context()); err != nil {
			writeText(w, http.StatusServiceUnavailable, "not ready: "+s.notReadyText(r.Context(), err))
			return
		}
		writeText(w, http.StatusOK, "ready")
	})
}

// notReadyText returns the public reason why the server is not ready, and logs the error.
func (s *server) notReadyText(ctx context.Context, err error) string {
	if errors.Is(err, errDraining) {
		return err.Error()
	}
	s.config.Logger.WarnContext(ctx, "not ready", "error", err)
	return "the store does not answer"
}
