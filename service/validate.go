package service

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// MutateAndValidate returns a resource as Write would store it, without storing it. If that depends on a stored resource that the caller may not read, it
// returns the content of the request.
func (s *Server) MutateAndValidate(ctx context.Context, req *resourcepb.MutateAndValidateRequest) (*resourcepb.MutateAndValidateResponse, error) {
	in, err := s.prepare(ctx, req.GetResource())
	var current *resourcepb.Resource
	if err == nil {
		current, err = s.convertUnread(ctx, in)
	}
	if err == nil {
		err = in.hookErr
	}
	if err == nil {
		err = s.checkUnmarked(ctx, in.requested.GetId().GetTenancy())
	}
	if err != nil {
		return nil, s.toStatus(ctx, "convert", err)
	}
	if current != nil && in.mayRead(current) != nil {
		return &resourcepb.MutateAndValidateResponse{Resource: in.original}, nil
	}
	out, err := in.t.FromStored(in.mutated)
	return &resourcepb.MutateAndValidateResponse{Resource: out}, s.toStatus(ctx, "convert", err)
}

// convertUnread is convert for a call that has not read the resource that the requested one would replace. It returns that resource, nil for none.
func (s *Server) convertUnread(ctx context.Context, in *input) (*resourcepb.Resource, error) {
	if !in.isConverted() {
		return nil, nil
	}
	id := idIn(in.id.GetTenancy(), in.id)
	id.Uid = ""
	current, err := s.readCurrent(ctx, consistency(ctx), id)
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return nil, err
	}
	if err == nil {
		if denied := s.authStatus(ctx, in.t.MayWrite(in.caller, current)); denied != nil {
			return nil, errors.Unwrap(s.deny(ctx, in, denied)) // a decision
		}
	}
	if err := s.convert(ctx, in, current); err != nil {
		return nil, errors.Unwrap(err) // convert returns decisions
	}
	return current, nil
}
