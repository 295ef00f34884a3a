package service

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// caller returns who calls, for a tenancy.
func (s *Server) caller(ctx context.Context, tenancy *resourcepb.Tenancy) (registry.Caller, error) {
	c, err := s.opts.Authenticate(ctx, token(ctx), tenancy)
	if err != nil {
		return nil, s.answered(ctx, "authenticate", err)
	}
	return c, nil
}

// allowed returns the answer of an authorization hook as callers are told of it.
func (s *Server) allowed(ctx context.Context, err error) error {
	if errors.Is(err, registry.ErrNeedResource) {
		return status.Error(codes.Internal, "the type's MayRead hook asks for a resource that it has")
	}
	return s.answered(ctx, "authorize", err)
}

// checkExists refuses a tenancy that does not exist. It comes after authorization, so that nobody learns what exists who may not.
func (s *Server) checkExists(ctx context.Context, tenancy *resourcepb.Tenancy, code codes.Code) error {
	exists, err := s.opts.Tenancies.Exists(ctx, tenancy)
	if err != nil {
		return s.answered(ctx, "look up the tenancy", err)
	}
	if !exists {
		return status.Errorf(code, "tenancy not found: partition %q, namespace %q", tenancy.GetPartition(), tenancy.GetNamespace())
	}
	return nil
}

// readers decides what the caller of a list or a watch may see, with one caller for each tenancy.
type readers struct {
	server *Server
	own    registry.Caller // of the tenancy of the request
	scope  *resourcepb.Tenancy
	known  map[tenancyKey]registry.Caller
}

// tenancyKey is a tenancy as a key of a map.
type tenancyKey struct{ partition, namespace string }

func (s *Server) readers(own registry.Caller, tenancy *resourcepb.Tenancy) *readers {
	return &readers{server: s, own: own, scope: tenancy, known: map[tenancyKey]registry.Caller{
		{tenancy.GetPartition(), tenancy.GetNamespace()}: own,
	}}
}

// of returns the caller of a tenancy, nil if there is none: then nothing of it is seen.
func (r *readers) of(ctx context.Context, tenancy *resourcepb.Tenancy) (registry.Caller, error) {
	key := tenancyKey{tenancy.GetPartition(), tenancy.GetNamespace()}
	if c, ok := r.known[key]; ok {
		return c, nil
	}
	c, err := r.server.caller(ctx, tenancy)
	if err != nil {
		if status.Code(err) != codes.PermissionDenied && status.Code(err) != codes.Unauthenticated {
			return nil, err
		}
		c = nil
	}
	r.known[key] = c
	return c, nil
}

// mayRead reports whether the caller may see a resource of type t.
func (r *readers) mayRead(ctx context.Context, t *registry.Type, res *resourcepb.Resource) (bool, error) {
	c, err := r.of(ctx, res.GetId().GetTenancy())
	if c == nil {
		return false, err
	}
	err = t.MayRead(c, res.GetId(), nil)
	if errors.Is(err, registry.ErrNeedResource) {
		err = t.MayRead(c, res.GetId(), res)
	}
	if denies(err) {
		return false, nil
	}
	return err == nil, r.server.allowed(ctx, err)
}

// denies reports whether an error of an authorization hook says that the caller is not allowed to, and not that the hook could not decide.
func denies(err error) bool {
	return errors.Is(err, registry.ErrDenied) || isStatus(err) && status.Code(err) == codes.PermissionDenied
}

// mayName reports whether the caller may know of a resource of the group and kind of t, whatever it holds.
func (r *readers) mayName(ctx context.Context, t *registry.Type, id *resourcepb.ID) (bool, error) {
	c, err := r.of(ctx, id.GetTenancy())
	return c != nil && t.MayRead(c, id, nil) == nil, err
}
