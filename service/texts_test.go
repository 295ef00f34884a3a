package service_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// failing is a backend whose reads fail.
type failing struct {
	storage.Backend
	err error
}

func (f failing) Read(context.Context, storage.ReadConsistency, *resourcepb.ID) (*resourcepb.Resource, error) {
	return nil, f.err
}

// Error texts of databases and hooks are logged and hidden from callers. An error of a hook is not an error of the service.
func TestErrorTexts(t *testing.T) {
	t.Parallel()
	const secret = "dial tcp 10.0.0.7:5432: user=admin"
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	memory := inmem.New(nil)
	defer memory.Close()
	for _, c := range []struct {
		what       string
		err        error
		read, auth codes.Code // told if a backend, or a hook, fails so
	}{
		{"anything", errors.New(secret), codes.Internal, codes.Internal},
		{"inconsistent", fmt.Errorf("%w: %s", storage.ErrInconsistent, secret), codes.Unavailable, codes.Internal},
		{"closed", fmt.Errorf("%s: %w", secret, storage.ErrClosed), codes.Unavailable, codes.Internal},
		{"not found", fmt.Errorf("%s: %w", secret, storage.ErrNotFound), codes.NotFound, codes.Internal},
		{"another service", fmt.Errorf("%w: %w", storage.ErrInconsistent, status.Error(codes.Unauthenticated, "etcd of 10.0.0.7 says no")),
			codes.Unavailable, codes.Internal},
		{"denied", registry.ErrDenied, codes.PermissionDenied, codes.PermissionDenied},
		{"denied by its code", status.Error(codes.PermissionDenied, "not you"), codes.PermissionDenied, codes.PermissionDenied},
	} {
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, nil))
		check := func(s *service.Server, where string, want codes.Code) {
			t.Helper()
			log.Reset()
			_, err := s.Read(ctx, &resourcepb.ReadRequest{Id: album("a", "").GetId()})
			if status.Code(err) != want || strings.Contains(err.Error(), "10.0.0.7") {
				t.Errorf("%s, of %s: %v, expected %v", c.what, where, err, want)
			}
			if logged := strings.Contains(log.String(), "10.0.0.7"); logged != (strings.Contains(c.err.Error(), "10.0.0.7") && want != codes.NotFound) {
				t.Errorf("%s, of %s: the log says %q", c.what, where, log.String())
			}
		}
		if c.what != "denied" {
			check(service.New(failing{memory, c.err}, albums(t, registry.Type{}), &service.Options{Logger: logger}), "the backend", c.read)
		}
		check(service.New(memory, albums(t, registry.Type{}), &service.Options{Logger: logger,
			Authenticate: func(context.Context, string, *resourcepb.Tenancy) (registry.Caller, error) { return nil, c.err },
		}), "Authenticate", c.auth)
		check(service.New(memory, albums(t, registry.Type{
			MayRead: func(registry.Caller, *resourcepb.ID, *resourcepb.Resource) error { return c.err },
		}), &service.Options{Logger: logger}), "MayRead", c.auth)
	}
}
