package serve

import (
	"cmp"
	"context"
	"net"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/service"
)

// Run serves the resources of a store until ctx ends, and then waits for active calls to end. It returns nil if it ended because ctx did.
func Run(ctx context.Context, config Config) error {
	if err := config.Check(); err != nil {
		return err
	}
	s, err := newServer(&config)
	if err != nil {
		return err
	}
	options := &service.Options{Logger: config.Logger, MaxList: maxList}
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
	return s.run(ctx, []string{config.Listen, config.HTTP, config.Admin}, func(backend storage.Backend, listeners []net.Listener) error {
		s.resources = service.New(backend, s.types, options)
		s.budget = newBudget(cmp.Or(config.MaxBuffered, defaultBuffered), s.tokens != nil)
		s.turns = newTurns(maxTurns, s.tokens != nil)
		s.limits = newLimits(config.Rate, config.TotalRate)
		s.metrics.measure(s.budget)
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
