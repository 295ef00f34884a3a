package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/reaper"
	"github.com/ashlar-dev/storage/service/registry"
)

// server is a server and all that it is made of.
type server struct {
	config       *Config
	certificates *certificates // nil without TLS
	tokens       *tokens       // nil if everybody may do everything
	traces       *sdktrace.TracerProvider
	metrics      *metrics
	calls        calls
	greetings    *greetings
	ready        *readiness

	types     *registry.Registry
	resources *service.Server
	grpc      *grpc.Server
	health    *health.Server
	// healthOver is over when watches of health are to end, which endHealth brings about.
	healthOver context.Context
	endHealth  func()
	http       []*http.Server
}

// Run serves the resources of a store until ctx is over, and then lets the calls under way end. It returns nil if it ended because it
// was told to.
func Run(ctx context.Context, config Config) (err error) {
	if err := config.Check(); err != nil {
		return err
	}
	s := &server{config: &config, metrics: newMetrics()}
	if s.certificates, err = newCertificates(&config); err != nil {
		return err
	}
	options := &service.Options{Logger: config.Logger}
	if config.Tokens != "" {
		if s.tokens, err = newTokens(config.Tokens); err != nil {
			return err
		}
		options.Authenticate = s.tokens.authenticate
	}
	if s.types, err = newRegistry(&config, s.tokens != nil); err != nil {
		return err
	}
	if s.traces, err = newTraces(ctx, config.Version); err != nil {
		return err
	}
	listeners, err := listen(ctx, config.Listen, config.HTTP, config.Admin)
	if err != nil {
		return err
	}
	defer func() {
		for _, l := range listeners {
			if l != nil {
				_ = l.Close() // the servers have closed it, unless they never came to serve
			}
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
	s.ready = &readiness{backend: backend, timeout: config.ReadyTimeout}
	s.resources = service.New(backend, s.types, options)
	s.healthOver, s.endHealth = context.WithCancel(context.Background())
	defer s.endHealth()
	s.grpc = s.newGRPC()
	s.resources.Register(s.grpc)
	s.resources.RegisterReflection(s.grpc)
	s.health = service.RegisterHealth(s.grpc)
	s.metrics.grpc.InitializeMetrics(s.grpc)
	return s.serve(ctx, listeners)
}

// listen opens the addresses, of which all but the first may be empty.
func listen(ctx context.Context, addresses ...string) ([]net.Listener, error) {
	listeners := make([]net.Listener, len(addresses))
	for i, address := range addresses {
		if address == "" {
			continue
		}
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			for _, open := range listeners[:i] {
				if open != nil {
					_ = open.Close() // nobody was served there yet
				}
			}
			return nil, fmt.Errorf("listen: %w", err)
		}
		listeners[i] = l
	}
	return listeners, nil
}

// serve serves at the listeners for gRPC, HTTP and probes, of which the last two may be nil, until ctx is over or one of them fails.
func (s *server) serve(ctx context.Context, listeners []net.Listener) error {
	work, stop := context.WithCancel(context.WithoutCancel(ctx)) // what runs until the end of the drain
	defer stop()
	group, failed := errgroup.WithContext(ctx)
	where := []any{"grpc", listeners[0].Addr().String()}
	group.Go(func() error { return serveGRPC(s.grpc, listeners[0]) })
	if listeners[1] != nil {
		mux := http.NewServeMux()
		mux.Handle("/api/", s.api())
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
	for i, l := range present(listeners[1:]) {
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
	group.Go(func() error { return s.report(failed) })
	group.Go(func() error {
		<-failed.Done()
		s.drain()
		stop()
		return nil
	})
	s.config.Logger.InfoContext(ctx, "listening", append(where, "tls", s.certificates != nil)...)
	if s.tokens == nil {
		s.config.Logger.WarnContext(ctx, "no token file: whoever reaches the server may do everything")
	}
	err := group.Wait()
	s.config.Logger.InfoContext(ctx, "stopped")
	return errors.Join(err, s.flush())
}

// present returns those listeners that there are.
func present(listeners []net.Listener) (some []net.Listener) {
	for _, l := range listeners {
		if l != nil {
			some = append(some, l)
		}
	}
	return some
}
