package service

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// convert converts the requested resource to the stored group version and calls complete. current is the resource that it replaces, nil for none. It does
// nothing if the requested resource has the stored group version. Its errors are decisions from current.
func (s *Server) convert(ctx context.Context, in *input, current *resourcepb.Resource) (err error) {
	if !in.isConverted() {
		return nil
	}
	if in.requested, err = in.t.ToStored(in.original, current); err != nil {
		return decisionError{s.hideCause(ctx, in, current, err)}
	}
	if err := s.complete(ctx, in); err != nil {
		return decisionError{err}
	}
	if in.hookErr == nil && !hasDeletionMark(current) {
		// The hooks may have set what the requested version cannot express: then the client could neither read nor repair it.
		if _, err := in.t.FromStored(in.mutated); err != nil {
			return decisionError{s.hideCause(ctx, in, current, err)}
		}
	}
	return nil
}

// deny returns the error for a caller that may not write the stored resource. If the request would fail without that resource, it is the same error, so
// that the caller does not learn that the resource exists.
func (s *Server) deny(ctx context.Context, in *input, denied error) error {
	if err := s.convert(ctx, in, nil); err != nil {
		return err
	}
	return decisionError{denied}
}

// hideCause returns a conversion error without its cause, which may have a part of the stored resource, unless the caller may read that.
func (s *Server) hideCause(ctx context.Context, in *input, current *resourcepb.Resource, err error) error {
	var failed *registry.ConversionError
	if current == nil || !errors.As(err, &failed) || in.mayRead(current) == nil {
		return err
	}
	if _, err := in.t.ToStored(in.original, nil); err != nil {
		return err // the request is the cause
	}
	s.opts.Logger.WarnContext(ctx, "a resource cannot be converted", "error", err)
	hidden := *failed
	hidden.Err = errors.New("the caller may not read the stored resource: the server's log has the cause")
	return &hidden
}
