package serve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/expiry"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
	"github.com/ashlar-dev/storage/service/web"
	"github.com/ashlar-dev/storage/telemetry"
)

// server holds the parts of a server.
type server struct {
	config       *Config
	certificates *certificates // nil without TLS
	tokens       *tokens       // nil if all callers may do everything
	audit        *auditLog     // nil without an audit log
	traces       *sdktrace.TracerProvider
	metrics      *metrics
	calls        calls
	handshakes   *handshakes
	ready        *readiness

	reloader  reloader
	types     *registry.Registry
	api       atomic.Pointer[http.Handler] // the resources as JSON, nil without an HTTP address
	resources *service.Server
	budget    *budget // nil if the server serves etcd's API
	turns     *turns
	limits    *limits
	grpc      *grpc.Server
	health    *health.Server
	// drainCtx ends when the server begins to drain. beginDrain ends it.
	drainCtx   context.Context
	beginDrain func()
	// healthCtx ends when watches of the health service must end. stopHealth ends it.
	healthCtx  context.Context
	stopHealth func()
	http       []*http.Server
	admin      *http.Server // of metrics and probes, if they have an address of their own; it ends last
}

// drainGrace is the time that calls have after their watches were ended and the drain time has passed.
const drainGrace = time.Second

// cutOffTimeout is the time that calls have to return after they were cut off. Until then they may write to the audit log.
const cutOffTimeout = 10 * time.Second

// drain stops the server. It accepts nothing new, waits until active calls end or the drain time has passed, and then ends watches with
// Unavailable. It cuts off calls that are still running then. A call that does not return even so, because its database driver or a hook is stuck,
// does not prevent the end of the process.
func (s *server) drain() {
	s.config.Logger.Info("draining", "for", s.config.Drain)
	s.beginDrain()
	bound, cancel := context.WithTimeout(context.Background(), s.config.Drain)
	defer cancel()
	last, cancel := context.WithTimeout(context.Background(), s.config.Drain+drainGrace)
	defer cancel()
	s.handshakes.close()
	var all sync.WaitGroup
	stopped := s.stopGRPC()
	all.Go(func() { s.cutOffGRPC(last, stopped) })
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
	cutOff, cancel := context.WithTimeout(context.Background(), cutOffTimeout)
	defer cancel()
	s.awaitHandlers(cutOff, stopped)
	if n := s.calls.wait(cutOff); n > 0 {
		s.config.Logger.Error("calls did not return after they were cut off: the audit log may lack them", "calls", n)
	}
}

// stopGRPC makes the server of gRPC accept nothing new. stopped is closed when all handlers have returned, those of calls that were cut off, too.
func (s *server) stopGRPC() (stopped <-chan struct{}) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.grpc.GracefulStop()
	}()
	return done
}

// cutOffGRPC cuts off the calls that are still running when last ends. Their handlers may still run.
func (s *server) cutOffGRPC(last context.Context, stopped <-chan struct{}) {
	select {
	case <-stopped:
	case <-last.Done():
		s.grpc.Stop()
	}
}

// awaitHandlers waits until all handlers of gRPC have returned or ctx ends.
func (s *server) awaitHandlers(ctx context.Context, stopped <-chan struct{}) {
	select {
	case <-stopped:
	case <-ctx.Done():
		s.config.Logger.Error("handlers of gRPC did not return after their calls were cut off")
	}
}

// delayDrain waits while probes already report that the server is not ready, so that load balancers stop sending requests to it.
func (s *server) delayDrain() {
	if s.config.DrainDelay > 0 {
		s.config.Logger.Info("serving on until the drain", "for", s.config.DrainDelay)
		time.Sleep(s.config.DrainDelay)
	}
}

// closeAdmin ends the server of metrics and probes.
func (s *server) closeAdmin() {
	if s.admin == nil {
		return
	}
	last, cancel := context.WithTimeout(context.Background(), drainGrace)
	defer cancel()
	if s.admin.Shutdown(last) != nil {
		_ = s.admin.Close() // the time to shut down has passed
	}
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
		s.config.Logger.WarnContext(ctx, "the store is not ready", "error", err)
		s.health.Shutdown()
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

// newServer returns a server with its metrics and certificates.
func newServer(c *Config) (*server, error) {
	s := &server{config: c, metrics: newMetrics(), reloader: reloader{logger: c.Logger, signals: c.Reload}}
	s.metrics.measureBuild(c.Version)
	if c.Cert == "" {
		return s, nil
	}
	s.certificates = &certificates{cert: c.Cert, key: c.Key, clientCA: c.ClientCA}
	return s, s.reloader.add("certificates", s.certificates.load, c.Cert, c.Key, c.ClientCA)
}

// telemetry returns the receivers of the store's reports.
func (s *server) telemetry() telemetry.Options {
	o := telemetry.Options{Logger: s.config.Logger, Meter: s.metrics.store}
	if s.traces != nil {
		o.Tracer = s.traces.Tracer(instrumentation)
	}
	return o
}

// run opens the addresses and the store, calls serve with them, and closes them.
func (s *server) run(ctx context.Context, addresses []string, serve func(storage.Backend, []net.Listener) error) (err error) {
	listeners, err := listen(ctx, addresses...)
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range nonNil(listeners) {
			_ = l.Close() // already closed by the servers, unless they did not start
		}
	}()
	backend, err := storage.Open(telemetry.NewContext(ctx, s.telemetry()), s.config.Store)
	if err != nil && ctx.Err() != nil {
		s.config.Logger.InfoContext(ctx, "stopped before the store was open")
		return nil
	}
	if err != nil {
		return fmt.Errorf("open the store: %w", err)
	}
	defer func() {
		if e := backend.Close(); e != nil {
			err = errors.Join(err, fmt.Errorf("close the store: %w", e))
		}
	}()
	s.ready = &readiness{backend: backend, timeout: s.config.ReadyTimeout, writeEvery: s.config.WriteProbe}
	s.healthCtx, s.stopHealth = context.WithCancel(context.Background())
	defer s.stopHealth()
	s.drainCtx, s.beginDrain = context.WithCancel(context.Background())
	defer s.beginDrain()
	return serve(backend, listeners)
}

// group runs the parts of a server. partsCtx ends when ctx does or a part fails.
type group struct {
	*errgroup.Group
	ctx, partsCtx context.Context
}

func newGroup(ctx context.Context) *group {
	g := &group{ctx: ctx}
	g.Group, g.partsCtx = errgroup.WithContext(ctx)
	return g
}

// goHTTP serves at a listener until h is shut down.
func (s *server) goHTTP(g *group, h *http.Server, l net.Listener) {
	s.http = append(s.http, h)
	g.Go(func() error { return serveHTTP(h, l) })
}

// goAdmin serves metrics and probes at a listener until the server has drained.
func (s *server) goAdmin(g *group, l net.Listener) {
	s.admin = s.newAdmin()
	g.Go(func() error { return serveHTTP(s.admin, l) })
}

// wait maintains the health service and reloads files, until ctx ends or a part of the server fails. Then it drains the server, and waits for
// all parts to end.
func (s *server) wait(g *group, where []any, warning string, drain func()) error {
	g.Go(func() error { return s.reloader.run(g.partsCtx) })
	g.Go(func() error { return s.updateHealth(g.partsCtx) })
	g.Go(func() error {
		<-g.partsCtx.Done()
		s.ready.draining.Store(true)
		s.notifySystemd(context.WithoutCancel(g.ctx), daemon.SdNotifyStopping)
		s.health.Shutdown()
		if g.ctx.Err() != nil { // no part of the server has failed
			s.delayDrain()
		}
		drain()
		s.closeAdmin()
		return nil
	})
	s.notifySystemd(g.ctx, daemon.SdNotifyReady)
	s.config.Logger.InfoContext(g.ctx, "listening", append(where, "tls", s.certificates != nil)...)
	if warning != "" {
		s.config.Logger.WarnContext(g.ctx, warning)
	}
	err := g.Wait()
	s.config.Logger.InfoContext(g.ctx, "stopped")
	return err
}

// notifySystemd reports a state to systemd, if it has started the server with Type=notify.
func (s *server) notifySystemd(ctx context.Context, state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		s.config.Logger.WarnContext(ctx, "systemd was not notified", "state", state, "error", err)
	}
}

// serve serves at the listeners for gRPC, HTTP and probes until ctx ends or one of them fails. The last two listeners may be nil.
func (s *server) serve(ctx context.Context, listeners []net.Listener) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx)) // ends after the drain
	defer stop()
	g := newGroup(ctx)
	where := []any{"grpc", addressOf(listeners[0])}
	g.Go(func() error { return serveGRPC(s.grpc, s.config.limitConnections(listeners[0])) })
	if listeners[1] != nil {
		mux := http.NewServeMux()
		s.setAPI()
		current := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*s.api.Load()).ServeHTTP(w, r) })
		mux.Handle("/api/", s.apiHandler(s.metrics.callers.watches(withTurn(current, s.turns, s.callerOf), s.callerOf)))
		if listeners[2] == nil {
			s.addAdmin(mux)
		}
		s.goHTTP(g, s.newHTTP(mux, true), s.config.limitConnections(listeners[1]))
		where = append(where, "http", addressOf(listeners[1]))
	}
	if listeners[2] != nil {
		s.goAdmin(g, listeners[2])
		where = append(where, "admin", addressOf(listeners[2]))
	}
	orphans := reaper.New(s.resources, &reaper.Options{Logger: s.config.Logger})
	s.metrics.measureReaper(orphans.Pending)
	g.Go(func() error {
		if err := orphans.Run(work); work.Err() == nil {
			return fmt.Errorf("the reaper ended: %w", err)
		}
		return nil
	})
	if s.config.Expire {
		s.goExpire(work, g)
	}
	warning := ""
	if s.tokens == nil {
		warning = "no token file: all callers that can reach the server may do everything"
	}
	err := s.wait(g, where, warning, func() {
		s.drain()
		stop()
	})
	return errors.Join(err, s.flushTraces())
}

// goExpire deletes resources after their time to live, until ctx ends.
func (s *server) goExpire(ctx context.Context, g *group) {
	expirer := expiry.New(s.resources.Backend(), &expiry.Options{Delete: s.resources.Expire, Logger: s.config.Logger})
	s.metrics.measureExpiry(expirer.Stats)
	g.Go(func() error {
		if err := expirer.Run(ctx); ctx.Err() == nil {
			return fmt.Errorf("the deletion of expired resources ended: %w", err)
		}
		return nil
	})
}

// setAPI sets the handler of the HTTP API to one with the current types.
func (s *server) setAPI() {
	h := web.NewHandler(pacedClient{s.resources.Client()}, s.types, &web.Options{
		Authenticate: s.checkToken, History: pacedHistory{s.resources.History()}, Identify: s.tokens.identify, Kinds: s.resources.Kinds,
	})
	s.api.Store(&h)
}

// newGRPC returns a gRPC server, without services.
func (s *server) newGRPC(creds credentials.TransportCredentials, limits grpcLimits) *grpc.Server {
	log := requestLog{s.config.Logger, s.metrics.callers}
	guard := guard{metrics: s.metrics, log: log}
	options := []grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ConnectionTimeout(headerTimeout),
		grpc.MaxRecvMsgSize(limits.request),
		grpc.MaxHeaderListSize(maxHeaders),
		grpc.MaxConcurrentStreams(limits.streams),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: limits.pings, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout, MaxConnectionAge: s.config.ConnectionAge}),
		grpc.ChainUnaryInterceptor(s.calls.unary, s.metrics.grpc.UnaryServerInterceptor(), log.unary, guard.unary),
		grpc.ChainStreamInterceptor(
			s.calls.rangeStream, s.metrics.grpc.StreamServerInterceptor(), s.metrics.stream, log.stream, guard.stream, s.healthStream,
		),
	}
	if s.budget != nil {
		sent := &answers{budget: s.budget, turns: s.turns, timeout: stallTimeout, logger: s.config.Logger, countStalled: s.metrics.stalledClients.Inc}
		calls := &admission{tokens: s.tokens, limits: s.limits, log: log}
		options = append(options, grpc.ChainUnaryInterceptor(sent.unary), grpc.ChainStreamInterceptor(sent.stream), grpc.StatsHandler(sent),
			grpc.ForceServerCodecV2(newSentCodec()), grpc.InTapHandle(calls.tap), grpc.StatsHandler(connections{}))
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
		Handler: boundBodies(s.drainCtx, handler, bodyTimeout), ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeaders,
		ErrorLog: slog.NewLogLogger(s.config.Logger.Handler(), slog.LevelDebug), // such as failed handshakes of unknown clients
	}
	if s.certificates != nil {
		h.TLSConfig = s.certificates.config(clients, "h2", "http/1.1")
	}
	return h
}

// apiHandler returns the handler for /api, which logs and measures the requests to a handler of resources and protects it.
func (s *server) apiHandler(resources http.Handler) http.Handler {
	h := http.StripPrefix("/api", resources)
	if s.tokens == nil && s.config.ClientCA == "" {
		h = protectOpen(h)
	}
	log := requestLog{s.config.Logger, s.metrics.callers}
	h = s.calls.handler(s.metrics.handler(log.handler(guard{metrics: s.metrics, log: log}.handler(h))))
	if s.traces == nil {
		return h
	}
	return otelhttp.NewHandler(h, "http", otelhttp.WithTracerProvider(s.traces))
}

// callerOf returns the name of the token of a request, "" for none and for requests that checkToken refuses.
func (s *server) callerOf(r *http.Request) string {
	token, err := web.TokenOf(r.Header)
	if err != nil {
		return ""
	}
	caller, _ := s.tokens.caller(r.Context(), token)
	return caller
}

// checkToken returns the error that the service would return to a caller with a token, or the error of a request beyond a limit.
func (s *server) checkToken(ctx context.Context, token string) error {
	caller, err := s.tokens.caller(ctx, token)
	if err != nil {
		return status.Error(codes.Unauthenticated, err.Error())
	}
	setCaller(ctx, caller)
	return s.limits.take(caller, time.Now())
}

// newAdmin returns the HTTP server of metrics and probes.
func (s *server) newAdmin() *http.Server {
	mux := http.NewServeMux()
	s.addAdmin(mux)
	addProfiles(mux)
	return s.newHTTP(mux, false)
}

// addProfiles adds the profiles of the process to a mux, without its command line, which may contain a password. Only the address of --admin has
// them: a profile takes time.
func addProfiles(mux *http.ServeMux) {
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
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
	switch {
	case errors.Is(err, storage.ErrMoved):
		return storage.ErrMoved.Error()
	case errors.Is(err, errNoWrites):
		return errNoWrites.Error()
	}
	return "the store does not answer"
}
