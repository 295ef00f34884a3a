package service

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// MutateAndValidate returns a resource as Write would store it, without storing it.
func (s *Server) MutateAndValidate(ctx context.Context, req *resourcepb.MutateAndValidateRequest) (*resourcepb.MutateAndValidateResponse, error) {
	in, err := s.prepare(ctx, req.GetResource())
	if err == nil {
		err = s.convertUnread(ctx, in)
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
	out, err := in.t.FromStored(in.mutated)
	return &resourcepb.MutateAndValidateResponse{Resource: out}, s.toStatus(ctx, "convert", err)
}

// convertUnread is convert for a call that has not read the resource that the requested one would replace.
func (s *Server) convertUnread(ctx context.Context, in *input) error {
	if !in.isConverted() {
		return nil
	}
	id := idIn(in.id.GetTenancy(), in.id)
	id.Uid = ""
	current, err := s.readCurrent(ctx, consistency(ctx), id)
	if err == nil {
		err = s.authStatus(ctx, in.t.MayWrite(in.caller, current))
	}
	if err != nil && !errors.Is(err, storage.ErrNotFound) {
		return err
	}
	if err := s.convert(ctx, in, current); err != nil {
		return errors.Unwrap(err) // convert returns decisions
	}
	return nil
}
