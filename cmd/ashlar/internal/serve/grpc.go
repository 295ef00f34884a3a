package serve

import (
	"errors"
	"net"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc/filters"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// The limits of the gRPC server. They are those of the servers of the API that this one is compatible with, so that a client's settings
// fit both.
const (
	maxReceived = 50 << 20
	maxStreams  = 2048
	minPings    = 15 * time.Second
)

// A client that has vanished without a word is noticed after these, and what it watched is given up.
const (
	pingAfter   = 30 * time.Second
	pingTimeout = 20 * time.Second
)

// newGRPC returns the gRPC server, without services.
func (s *server) newGRPC() *grpc.Server {
	creds := insecure.NewCredentials()
	if s.certificates != nil {
		creds = credentials.NewTLS(s.certificates.config(true, "h2"))
	}
	s.greetings = newGreetings(creds)
	log := requestLog{s.config.Logger}
	guard := guard{metrics: s.metrics, log: log}
	options := []grpc.ServerOption{
		grpc.Creds(s.greetings),
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

// serveGRPC serves until the server is stopped, which may have come first.
func serveGRPC(g *grpc.Server, l net.Listener) error {
	if err := g.Serve(l); !errors.Is(err, grpc.ErrServerStopped) {
		return err
	}
	return nil
}
