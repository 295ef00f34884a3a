package serve

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

// requestLog writes a line for every call, with its method, caller, duration and outcome, and counts it. It never reads metadata or headers, because they contain
// tokens.
type requestLog struct {
	logger  *slog.Logger
	callers *callerMetrics // counts the calls; nil: not counted
}

// caller holds the name of the caller, once it is known. A stream may set it repeatedly.
type caller struct{ name atomic.Pointer[string] }

type callerKey struct{}

// withCaller returns a context with room for the name that setCaller stores.
func withCaller(ctx context.Context) (context.Context, *caller) {
	c := &caller{}
	return context.WithValue(ctx, callerKey{}, c), c
}

// setCaller stores the name of the caller.
func setCaller(ctx context.Context, name string) {
	if c, ok := ctx.Value(callerKey{}).(*caller); ok {
		c.name.Store(&name)
	}
}

func (c *caller) String() string {
	if name := c.name.Load(); name != nil {
		return *name
	}
	return ""
}

func (l requestLog) unary(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
	began := time.Now()
	ctx, who := withCaller(ctx)
	answer, err := next(ctx, req)
	l.call(ctx, info.FullMethod, who, began, err)
	return answer, err
}

func (l requestLog) stream(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	began := time.Now()
	ctx, who := withCaller(s.Context())
	err := next(srv, withContext{s, ctx})
	l.call(ctx, info.FullMethod, who, began, err)
	return err
}

// withContext is a stream with another context.
type withContext struct {
	grpc.ServerStream
	ctx context.Context
}

// Context returns the context.
func (w withContext) Context() context.Context { return w.ctx }

func (l requestLog) call(ctx context.Context, method string, who *caller, began time.Time, err error) {
	l.callers.count(who.String(), "grpc", refusalReasons[status.Code(err)])
	level := levelOf(status.Code(err))
	if !l.logger.Enabled(ctx, level) {
		return
	}
	attrs := []slog.Attr{
		slog.String("method", truncate(method)), slog.String("code", status.Code(err).String()), slog.Duration("took", time.Since(began)),
		slog.String("caller", who.String()),
	}
	if p, ok := peer.FromContext(ctx); ok {
		attrs = append(attrs, slog.String("peer", p.Addr.String()))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", status.Convert(err).Message()))
	}
	l.logger.LogAttrs(ctx, level, "call", attrs...)
}

// levelOf returns the log level of a call: failures of the server are warnings, rejected callers are informational, and everything else is
// for debugging.
func levelOf(code codes.Code) slog.Level {
	switch code {
	case codes.Internal, codes.Unknown, codes.DataLoss, codes.Unavailable, codes.DeadlineExceeded, codes.Unimplemented:
		return slog.LevelWarn
	case codes.Unauthenticated, codes.PermissionDenied:
		return slog.LevelInfo
	case codes.OK, codes.Canceled, codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.ResourceExhausted,
		codes.FailedPrecondition, codes.Aborted, codes.OutOfRange:
	}
	return slog.LevelDebug
}

// handler logs the requests of an HTTP handler. It logs the path of the URL but not the query.
func (l requestLog) handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		ctx, who := withCaller(peer.NewContext(r.Context(), peerOf(r)))
		answer := &statusRecorder{ResponseWriter: w, code: http.StatusOK}
		defer func() { // also if the handler aborts its answer by a panic
			l.callers.count(who.String(), "http", httpRefusalReasons[answer.code])
			level := slog.LevelDebug
			switch {
			case answer.code >= http.StatusInternalServerError:
				level = slog.LevelWarn
			case answer.code == http.StatusUnauthorized, answer.code == http.StatusForbidden:
				level = slog.LevelInfo
			}
			l.logger.LogAttrs(ctx, level, "request", slog.String("method", r.Method), slog.String("path", truncate(r.URL.Path)), slog.Int("code", answer.code),
				slog.Duration("took", time.Since(began)), slog.String("caller", who.String()), slog.String("peer", r.RemoteAddr))
		}()
		next.ServeHTTP(answer, r.WithContext(ctx))
	})
}

// peerOf returns the client of an HTTP request, as gRPC describes its clients.
func peerOf(r *http.Request) *peer.Peer {
	p := &peer.Peer{Addr: remoteAddr(r.RemoteAddr)}
	if r.TLS != nil {
		p.AuthInfo = credentials.TLSInfo{State: *r.TLS}
	}
	return p
}

// remoteAddr is the address of an HTTP client.
type remoteAddr string

func (remoteAddr) Network() string  { return "tcp" }
func (a remoteAddr) String() string { return string(a) }

// statusRecorder is a response writer that records the status code.
type statusRecorder struct {
	http.ResponseWriter
	code  int
	wrote bool
}

// WriteHeader records the status code.
func (a *statusRecorder) WriteHeader(code int) {
	if !a.wrote && code >= http.StatusOK {
		a.code, a.wrote = code, true
	}
	a.ResponseWriter.WriteHeader(code)
}

// Write writes a part of the body, and thereby the header.
func (a *statusRecorder) Write(b []byte) (int, error) {
	a.wrote = true
	return a.ResponseWriter.Write(b)
}

// Unwrap gives http.ResponseController access to the underlying writer, to flush it.
func (a *statusRecorder) Unwrap() http.ResponseWriter { return a.ResponseWriter }
