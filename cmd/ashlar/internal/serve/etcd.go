package serve

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/service"
)

// RunEtcd serves the keys of a store through etcd's API until ctx ends, as Run serves resources. It ignores the tokens, the types and the
// HTTP address of the configuration.
func RunEtcd(ctx context.Context, config Config) (err error) {
	s := &server{config: &config, metrics: newMetrics()}
	if s.certificates, err = newCertificates(&config); err != nil {
		return err
	}
	listeners, err := listen(ctx, config.Listen, config.Admin)
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range nonNil(listeners) {
			_ = l.Close() // already closed by the servers, unless they did not start
		}
	}()
	backend, err := storage.Open(ctx, config.Store)
	if err != nil && ctx.Err() != nil {
		config.Logger.InfoContext(ctx, "stopped before the store was open")
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
	keys, err := etcdserver.New(backend, nil)
	if err != nil {
		return err
	}
	defer keys.Close()
	s.ready = &readiness{backend: backend, timeout: config.ReadyTimeout}
	s.healthCtx, s.stopHealth = context.WithCancel(context.Background())
	defer s.stopHealth()
	port := newSharedPort(s.certificates, listeners[0].Addr())
	s.handshakes = newHandshakes(port)
	s.grpc = s.newEtcdGRPC(s.handshakes)
	keys.Register(s.grpc)
	s.health = service.RegisterHealth(s.grpc)
	s.metrics.grpc.InitializeMetrics(s.grpc)
	json, err := newGateway(ctx)
	if err != nil {
		return err
	}
	inside := s.newEtcdGRPC(insecure.NewCredentials())
	keys.Register(inside)
	defer func() {
		inside.Stop()
		_ = json.conn.Close() // its calls have ended
	}()

	group, failed := errgroup.WithContext(ctx)
	group.Go(func() error { return serveGRPC(s.grpc, sharedListener{listeners[0]}) })
	group.Go(func() error { return serveGRPC(inside, json.listener) })
	s.serveEtcdHTTP(group, port, json)
	where := []any{"grpc", listeners[0].Addr().String()}
	if listeners[1] != nil {
		mux := http.NewServeMux()
		s.addAdmin(mux)
		admin := s.newHTTP(mux, false)
		s.http = append(s.http, admin)
		where = append(where, "admin", listeners[1].Addr().String())
		group.Go(func() error {
			if err := serveHTTP(admin, listeners[1]); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	group.Go(func() error { return s.reload(failed) })
	group.Go(func() error { return s.updateHealth(failed) })
	group.Go(func() error {
		<-failed.Done()
		s.drainEtcd(keys)
		inside.Stop()
		return nil
	})
	config.Logger.InfoContext(ctx, "listening", append(where, "tls", s.certificates != nil)...)
	if config.ClientCA == "" {
		config.Logger.WarnContext(ctx, "clients need no certificate: everyone who can reach the server may do everything")
	}
	err = group.Wait()
	config.Logger.InfoContext(ctx, "stopped")
	return err
}

// minEtcdPings is the minimum time between two pings of a client. It equals the limit of etcd's servers, which etcd's clients respect.
const minEtcdPings = 5 * time.Second

// serveEtcdHTTP serves etcd's HTTP/1 clients until the server is shut down.
func (s *server) serveEtcdHTTP(group *errgroup.Group, port *sharedPort, json *gateway) {
	h := s.newHTTP(s.etcdHandler(json), true)
	h.TLSConfig = nil // the shared port terminates TLS
	s.http = append(s.http, h)
	group.Go(func() error {
		if err := h.Serve(port); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
}

// newEtcdGRPC returns a gRPC server for etcd's clients, without services. A client sends all of its watches over one connection, so the
// number of streams is not limited.
func (s *server) newEtcdGRPC(creds credentials.TransportCredentials) *grpc.Server {
	log := requestLog{s.config.Logger}
	guard := guard{metrics: s.metrics, log: log}
	return grpc.NewServer(
		grpc.Creds(creds),
		grpc.ConnectionTimeout(headerTimeout),
		grpc.MaxRecvMsgSize(maxEtcdRequest),
		grpc.MaxConcurrentStreams(math.MaxUint32),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: minEtcdPings, PermitWithoutStream: true}),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.ChainUnaryInterceptor(s.calls.unary, s.metrics.grpc.UnaryServerInterceptor(), log.unary, guard.unary),
		grpc.ChainStreamInterceptor(
			s.calls.rangeStream, s.metrics.grpc.StreamServerInterceptor(), s.metrics.stream, log.stream, guard.stream, s.healthStream,
		),
	)
}

// drainEtcd stops the server. It accepts nothing new, waits until active calls end or the drain time has passed, and then ends watches with
// Unavailable, so that clients continue elsewhere. It cuts off any call that still runs after that.
func (s *server) drainEtcd(keys *etcdserver.Server) {
	s.config.Logger.Info("draining", "for", s.config.Drain)
	s.ready.draining.Store(true)
	s.health.Shutdown()
	s.handshakes.close()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		s.grpc.GracefulStop()
	}()
	bound, cancel := context.WithTimeout(context.Background(), s.config.Drain)
	s.calls.wait(bound)
	cancel()
	keys.Close()
	s.stopHealth()
	last, cancel := context.WithTimeout(context.Background(), drainGrace)
	defer cancel()
	for _, h := range s.http {
		if h.Shutdown(last) != nil {
			_ = h.Close() // the time to shut down has passed
		}
	}
	select {
	case <-stopped:
	case <-last.Done():
		s.grpc.Stop()
		<-stopped
	}
}
