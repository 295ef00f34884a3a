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
		return nil, s.hookStatus(ctx, "authenticate", err)
	}
	return c, nil
}

// authStatus returns the answer of an authorization hook as callers are told of it.
func (s *Server) authStatus(ctx context.Context, err error) error {
	if errors.Is(err, registry.ErrNeedResource) {
		return status.Error(codes.Internal, "the type's MayRead hook asks for a resource that it has")
	}
	return s.hookStatus(ctx, "authorize", err)
}

// checkExists refuses a tenancy that does not exist. It comes after authorization, so that nobody learns what exists who may not.
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

// visibility decides what the caller of a list or a watch may see, with one caller for each tenancy.
type visibility struct {
	server    *Server
	requester registry.Caller // of the tenancy of the request
	scope     *resourcepb.Tenancy
	callers   map[tenancyKey]registry.Caller
}

// tenancyKey is a tenancy as a key of a map.
type tenancyKey struct{ partition, namespace string }

func (s *Server) newVisibility(own registry.Caller, tenancy *resourcepb.Tenancy) *visibility {
	return &visibility{server: s, requester: own, scope: tenancy, callers: map[tenancyKey]registry.Caller{
		{tenancy.GetPartition(), tenancy.GetNamespace()}: own,
	}}
}

// caller returns the caller caller a tenancy, nil if there is none: then nothing caller it is seen.
func (r *visibility) caller(ctx context.Context, tenancy *resourcepb.Tenancy) (registry.Caller, error) {
	key := tenancyKey{tenancy.GetPartition(), tenancy.GetNamespace()}
	if c, ok := r.callers[key]; ok {
		return c, nil
	}
	c, err := r.server.caller(ctx, tenancy)
	if err != nil {
		if status.Code(err) != codes.PermissionDenied && status.Code(err) != codes.Unauthenticated {
			return nil, err
		}
		c = nil
	}
	r.callers[key] = c
	return c, nil
}

// mayRead reports whether the caller may see a resource of type t.
func (r *visibility) mayRead(ctx context.Context, t *registry.Type, res *resourcepb.Resource) (bool, error) {
	c, err := r.caller(ctx, res.GetId().GetTenancy())
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
	return err == nil, r.server.authStatus(ctx, err)
}

// denies reports whether an error of an authorization hook says that the caller is not allowed to, and not that the hook could not decide.
func denies(err error) bool {
	return errors.Is(err, registry.ErrDenied) || isStatus(err) && status.Code(err) == codes.PermissionDenied
}

// mayName reports whether the caller may know of a resource of the group and kind of t, whatever it holds.
func (r *visibility) mayName(ctx context.Context, t *registry.Type, id *resourcepb.ID) (bool, error) {
	c, err := r.caller(ctx, id.GetTenancy())
	return c != nil && t.MayRead(c, id, nil) == nil, err
}
