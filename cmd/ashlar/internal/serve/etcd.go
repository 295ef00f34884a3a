package serve

import (
	"context"
	"math"
	"net"
	"time"

	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/service"
)

// RunEtcd serves the keys of a store through etcd's API until ctx ends, as Run serves resources. It ignores the tokens, the types and the
// HTTP address of the configuration.
func RunEtcd(ctx context.Context, config Config) error {
	s, err := newServer(&config)
	if err != nil {
		return err
	}
	return s.run(ctx, []string{config.Listen, config.Admin}, func(backend storage.Backend, listeners []net.Listener) error {
		keys, err := etcdserver.New(backend, nil)
		if err != nil {
			return err
		}
		defer keys.Close()
		return s.serveEtcd(ctx, keys, listeners[0], listeners[1])
	})
}

// ValidateEtcd is Validate for RunEtcd.
func ValidateEtcd(config Config) error {
	_, err := newServer(&config)
	return err
}

// serveEtcd serves keys at the listeners for clients and probes until ctx ends or one of them fails. The second listener may be nil.
func (s *server) serveEtcd(ctx context.Context, keys *etcdserver.Server, clients, admin net.Listener) error {
	limits := grpcLimits{maxEtcdRequest, math.MaxUint32, minEtcdPings} // a client sends all of its watches over one connection
	clients = s.config.limitConnections(clients)
	port := newSharedPort(s.certificates, clients.Addr())
	s.handshakes = newHandshakes(port)
	s.grpc = s.newGRPC(s.handshakes, limits)
	keys.Register(s.grpc)
	s.health = service.RegisterHealth(s.grpc)
	s.metrics.grpc.InitializeMetrics(s.grpc)
	json, err := newGateway(ctx)
	if err != nil {
		return err
	}
	inside := s.newGRPC(insecure.NewCredentials(), limits)
	keys.Register(inside)
	defer func() {
		inside.Stop()
		_ = json.conn.Close() // its calls have ended
	}()

	g := newGroup(ctx)
	g.Go(func() error { return serveGRPC(s.grpc, sharedListener{clients}) })
	g.Go(func() error { return serveGRPC(inside, json.listener) })
	web := s.newHTTP(s.etcdHandler(json), true)
	web.TLSConfig = nil // the shared port terminates TLS
	s.goHTTP(g, web, port)
	where := []any{"grpc", addressOf(clients)}
	if admin != nil {
		where = append(where, "admin", addressOf(admin))
		s.goAdmin(g, admin)
	}
	warning := ""
	if s.config.ClientCA == "" {
		warning = "clients need no certificate: all callers that can reach the server may do everything"
	}
	return s.wait(g, where, warning, func() {
		s.drainEtcd(keys)
		inside.Stop()
	})
}

// minEtcdPings is the minimum time between two pings of a client. It equals the limit of etcd's servers, which etcd's clients respect.
const minEtcdPings = 5 * time.Second

// drainEtcd stops the server. It accepts no new connection, waits until active calls end or the drain time has passed, and then ends watches with
// Unavailable, so that clients continue elsewhere. It cuts off calls that are running, and answers that were not read, drainGrace after the drain
// time, or stallTimeout after the end of the watches if that is earlier.
func (s *server) drainEtcd(keys *etcdserver.Server) {
	s.config.Logger.Info("draining", "for", s.config.Drain)
	s.beginDrain()
	bound, cancel := context.WithTimeout(context.Background(), s.config.Drain)
	defer cancel()
	last, endLast := context.WithTimeout(context.Background(), s.config.Drain+drainGrace) // a client may read slowly after its call has returned
	defer endLast()
	s.handshakes.close()
	stopped := s.stopGRPC()
	s.calls.wait(bound)
	s.stopHealth()
	keys.Close()
	defer time.AfterFunc(stallTimeout, endLast).Stop() // a client that does not read its watch
	for _, h := range s.http {
		if h.Shutdown(last) != nil {
			_ = h.Close() // the time to shut down has passed
		}
	}
	s.cutOffGRPC(last, stopped)
	cutOff, cancel := context.WithTimeout(context.Background(), cutOffTimeout)
	defer cancel()
	s.awaitHandlers(cutOff, stopped)
}
