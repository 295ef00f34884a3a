package service

import (
	"context"

	"github.com/ashlar-dev/storage/resourcepb"
)

// convert converts the requested resource to the stored group version and calls complete. current is the resource that it replaces, nil for none. It does
// nothing if the requested resource has the stored group version. Its errors are decisions from current.
func (s *Server) convert(ctx context.Context, in *input, current *resourcepb.Resource) (err error) {
	if !in.isConverted() {
		return nil
	}
	if in.requested, err = in.t.ToStored(in.given, current); err != nil {
		return decisionError{err}
	}
	if err := s.complete(ctx, in); err != nil {
		return decisionError{err}
	}
	if in.hookErr == nil {
		// The hooks may have set what the requested version cannot express: then the client could neither read nor repair it.
		if _, err := in.t.FromStored(in.mutated); err != nil {
			return decisionError{err}
		}
	}
	return nil
}
