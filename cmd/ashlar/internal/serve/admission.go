package serve

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"

	"github.com/ashlar-dev/storage/service"
)

// admission refuses gRPC calls before their messages are read, so that a caller without a valid token cannot make the server hold messages.
type admission struct {
	tokens    *tokens // nil if all callers may do everything
	limits    *limits
	log       requestLog
	anonymous atomic.Int64
	probes    probes
}

// tap is called for each new call, in the goroutine that reads the connection. ctx ends with the call, but not if the call is refused.
func (a *admission) tap(ctx context.Context, call *tap.Info) (context.Context, error) {
	began := time.Now()
	who, err := a.find(ctx, call.FullMethodName)
	if err == nil && !isProbe(call.FullMethodName) {
		err = a.limits.take(who.callerName(), began)
	}
	switch {
	case err != nil || a.tokens == nil || who != nil:
	case call.FullMethodName == grpc_health_v1.Health_Check_FullMethodName:
		ctx = a.probes.admit(ctx)
	default:
		err = a.admitAnonymous(ctx) // last: the context of a call that is refused later would not end
	}
	if err == nil {
		return withPrincipal(ctx, who), nil
	}
	ctx, refused := withCaller(ctx)
	setCaller(ctx, who.callerName())
	a.log.call(ctx, call.FullMethodName, refused, began, err)
	countRefusal(ctx)
	return nil, err
}

// find returns the owner of the token of a call, nil for none, or the error of a call that is refused.
func (a *admission) find(ctx context.Context, method string) (*principal, error) {
	if a.tokens == nil {
		return nil, nil
	}
	who, err := a.tokens.find(ctx, service.Token(ctx))
	switch {
	case err == nil && !who.anonymous:
		return who, nil
	case err != nil && !isProbe(method):
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return nil, nil
}

// admitAnonymous counts a call without a valid token until it ends.
func (a *admission) admitAnonymous(ctx context.Context) error {
	if a.anonymous.Add(1) > maxAnonymous {
		a.anonymous.Add(-1)
		return status.Errorf(codes.ResourceExhausted, "the server has %d active calls without a token: try again later, or send a token", maxAnonymous)
	}
	context.AfterFunc(ctx, func() { a.anonymous.Add(-1) })
	return nil
}

// principalKey is the context key of the name of a caller's token.
type principalKey struct{}

// withPrincipal returns a context with the name of a caller's token.
func withPrincipal(ctx context.Context, who *principal) context.Context {
	return context.WithValue(ctx, principalKey{}, who.callerName())
}

// principalOf returns the name of the caller's token, "" for callers without one.
func principalOf(ctx context.Context) string {
	name, _ := ctx.Value(principalKey{}).(string)
	return name
}

// isProbe reports whether a method belongs to the health service, which needs no token.
func isProbe(method string) bool {
	return strings.HasPrefix(method, "/"+grpc_health_v1.Health_ServiceDesc.ServiceName+"/")
}

// protectOpen guards the handler of a server that trusts every connection, on a loopback address, from pages in a browser of this
// machine. A page of another site sends its Origin. A page whose name was redirected to a loopback address (DNS rebinding) sends
// that name as Host.
func protectOpen(next http.Handler) http.Handler {
	sameOrigin := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isLoopback(r.Context()) && !isLocalHost(r.Host) {
			writeText(w, http.StatusForbidden, "this server accepts only requests to localhost or to an IP address: start it with --tokens to allow other host names")
			return
		}
		if err := sameOrigin.Check(r); err != nil || r.Header.Get("Sec-Fetch-Site") == "cross-site" {
			writeText(w, http.StatusForbidden, "requests from pages of other sites are not allowed")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// isLoopback reports whether a request arrived at a loopback address.
func isLoopback(ctx context.Context) bool {
	at, _ := ctx.Value(http.LocalAddrContextKey).(net.Addr)
	tcp, ok := at.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}

// isLocalHost reports whether the Host header of a request is localhost or an IP address.
func isLocalHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil
}
