package serve

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
)

// lastCalls is how long calls may still run after watches were ended and their own time is over.
const lastCalls = time.Second

// drain ends the server: nothing new is accepted, calls go on until they end or their time is over, and then watches end, with
// Unavailable. What still runs after that is cut off.
func (s *server) drain() {
	s.config.Logger.Info("draining", "for", s.config.Drain)
	s.ready.draining.Store(true)
	s.health.Shutdown()
	bound, cancel := context.WithTimeout(context.Background(), s.config.Drain)
	defer cancel()
	last, cancel := context.WithTimeout(context.Background(), s.config.Drain+lastCalls)
	defer cancel()
	s.greetings.close()
	var all sync.WaitGroup
	all.Go(func() {
		stop := context.AfterFunc(last, s.grpc.Stop)
		defer stop()
		s.grpc.GracefulStop()
	})
	for _, h := range s.http {
		all.Go(func() {
			if h.Shutdown(last) != nil {
				_ = h.Close() // its time is over
			}
		})
	}
	s.calls.wait(bound)
	s.resources.Drain()
	s.endHealth()
	all.Wait()
}

// healthStream ends watches of gRPC's health service when the server drains. That service tells them only that it is not ready any more.
func (s *server) healthStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
	if info.FullMethod != grpc_health_v1.Health_Watch_FullMethodName {
		return next(srv, stream)
	}
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	stop := context.AfterFunc(s.healthOver, cancel)
	defer stop()
	err := next(srv, withContext{stream, ctx})
	if s.healthOver.Err() != nil {
		return status.Error(codes.Unavailable, errDraining.Error())
	}
	return err
}

// probeEvery is the time between two looks at the store for gRPC's health service, whose watchers are told of changes.
const probeEvery = 10 * time.Second

// report keeps the health service up to date with what the probe of the store says.
func (s *server) report(ctx context.Context) error {
	ticker := time.NewTicker(probeEvery)
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
				s.health.Shutdown() // the drain came in between
			}
			continue
		}
		s.config.Logger.WarnContext(ctx, "the store does not answer", "error", err)
		s.health.Shutdown()
	}
}

// reload reads the token file and the certificates again when that is asked for. What cannot be read leaves what was read before.
func (s *server) reload(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.config.Reload:
		}
		read := func(what string, load func() error) {
			if err := load(); err != nil {
				s.config.Logger.ErrorContext(ctx, "not reloaded, what was read before stays", "what", what, "error", err)
				return
			}
			s.config.Logger.InfoContext(ctx, "reloaded", "what", what)
		}
		if s.tokens != nil {
			read("tokens", s.tokens.load)
		}
		if s.certificates != nil {
			read("certificates", s.certificates.load)
		}
	}
}

// flush sends the traces that were not sent yet.
func (s *server) flush() error {
	if s.traces == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), lastCalls)
	defer cancel()
	return s.traces.Shutdown(ctx)
}
