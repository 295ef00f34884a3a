package serve

import (
	"cmp"
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// Run serves the resources of a store until ctx ends, and then waits for active calls to end. It returns nil if it ended because ctx did.
func Run(ctx context.Context, config Config) error {
	s, err := newResourceServer(&config)
	if err != nil {
		return err
	}
	options := &service.Options{Logger: config.Logger, MaxList: maxList}
	if s.tokens != nil {
		options.Authenticate = s.tokens.authenticate
	}
	if s.audit, err = newAuditLog(&config, s.types); err != nil {
		return err
	}
	if s.audit != nil {
		if err := s.reloader.add("audit log", s.audit.open); err != nil { // without paths: only a signal opens it again
			return err
		}
	}
	defer s.audit.close()
	options.Audit = s.audit.callback()
	if config.RecordAuthor {
		options.Author = func(c registry.Caller) string { return c.(*principal).name }
	}
	if s.traces, err = newTraces(ctx, config.Version); err != nil {
		return err
	}
	return s.run(ctx, []string{config.Listen, config.HTTP, config.Admin}, func(backend storage.Backend, listeners []net.Listener) error {
		s.resources = service.New(backend, s.types, options)
		s.budget = newBudget(cmp.Or(config.MaxBuffered, defaultBuffered), s.tokens != nil)
		s.turns = newTurns(maxTurns, s.tokens != nil)
		s.limits = newLimits(config.Rate, config.TotalRate)
		s.metrics.registry.MustRegister(s.budget)
		creds := insecure.NewCredentials()
		if s.certificates != nil {
			creds = credentials.NewTLS(s.certificates.config(true, "h2"))
		}
		s.handshakes = newHandshakes(creds)
		s.grpc = s.newGRPC(s.handshakes, grpcLimits{maxReceived, maxStreams, minPings})
		s.resources.Register(s.grpc)
		s.resources.RegisterReflection(s.grpc)
		s.health = service.RegisterHealth(s.grpc)
		s.metrics.grpc.InitializeMetrics(s.grpc)
		return s.serve(ctx, listeners)
	})
}

// Validate reads the files of a configuration and returns their errors. It opens neither the store nor addresses.
func Validate(config Config) error {
	_, err := newResourceServer(&config)
	return err
}

// newResourceServer returns a server of resources that has read its files.
func newResourceServer(config *Config) (*server, error) {
	if err := config.Check(); err != nil {
		return nil, err
	}
	s, err := newServer(config)
	if err != nil {
		return nil, err
	}
	if config.Tokens != "" {
		s.tokens = &tokens{file: config.Tokens, check: func(p *policy) error { return p.checkTypes(s.types) }}
	}
	if config.Types == "" {
		err = s.loadTypes()
	} else {
		err = s.reloader.add("types", s.loadTypes, config.Types)
	}
	if err == nil && s.tokens != nil {
		err = s.reloader.add("tokens", s.tokens.load, config.Tokens)
	}
	return s, err
}

// loadTypes reads the types. A server that runs serves them from then on.
func (s *server) loadTypes() error {
	types, err := newRegistry(s.config, s.tokens != nil)
	if err != nil {
		return err
	}
	if s.tokens != nil && s.tokens.current.Load() != nil {
		if err := s.tokens.current.Load().checkTypes(types); err != nil {
			return err
		}
	}
	s.types = types
	if s.resources == nil {
		return nil
	}
	s.resources.SetTypes(types)
	if s.audit != nil {
		s.audit.setTypes(types)
	}
	if s.api.Load() != nil {
		s.setAPI()
	}
	return nil
}
