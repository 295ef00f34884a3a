package service

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// caller authenticates the caller of ctx for a tenancy.
func (s *Server) caller(ctx context.Context, tenancy *resourcepb.Tenancy) (registry.Caller, error) {
	c, err := s.opts.Authenticate(ctx, Token(ctx), tenancy)
	if err != nil {
		return nil, s.hookStatus(ctx, "authenticate", err)
	}
	return c, nil
}

// authStatus converts the error of an authorization hook to a status error.
func (s *Server) authStatus(ctx context.Context, err error) error {
	if errors.Is(err, registry.ErrNeedResource) {
		return status.Error(codes.Internal, "the type's MayRead hook returned ErrNeedResource although it was given the resource")
	}
	return s.hookStatus(ctx, "authorize", err)
}

// checkExists fails with code if a tenancy does not exist. Callers authorize first, so that an unauthorized caller does not learn which
// tenancies exist.
func (s *Server) checkExists(ctx context.Context, tenancy *resourcepb.Tenancy, code codes.Code) error {
	exists, err := s.opts.Tenancies.Exists(ctx, tenancy)
	if err != nil {
		return s.hookStatus(ctx, "look up the tenancy", err)
	}
	if !exists {
		return status.Errorf(code, "tenancy not found: partition %q, namespace %q", tenancy.GetPartition(), tenancy.GetNamespace())
	}
	return nil
}

// denies reports whether the error of an authorization hook denies the request. Any other error means that the hook could not decide.
func denies(err error) bool {
	return errors.Is(err, registry.ErrDenied) || isStatus(err) && status.Code(err) == codes.PermissionDenied
}
