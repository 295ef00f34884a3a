package serve

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/service"
)

// Run serves the resources of a store until ctx ends, and then waits for active calls to end. It returns nil if it ended because ctx did.
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
				_ = l.Close() // already closed by the servers, unless they did not start
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
	s.healthCtx, s.stopHealth = context.WithCancel(context.Background())
	defer s.stopHealth()
	s.grpc = s.newGRPC()
	s.resources.Register(s.grpc)
	s.resources.RegisterReflection(s.grpc)
	s.health = service.RegisterHealth(s.grpc)
	s.metrics.grpc.InitializeMetrics(s.grpc)
	return s.serve(ctx, listeners)
}
