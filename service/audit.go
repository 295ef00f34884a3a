package service

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// audit starts the record of a call. The returned function passes the record on with the error of the call. It must be deferred: it reports a
// panic of a hook as an error.
func (s *Server) audit(ctx context.Context, method string, id *resourcepb.ID) (context.Context, func(*error)) {
	if s.opts.Audit == nil {
		return ctx, func(*error) {}
	}
	m := &Mutation{Method: method, ID: id}
	ctx = context.WithValue(ctx, mutationKey{}, m)
	return ctx, func(err *error) {
		cause := recover()
		if m.Err = *err; cause != nil {
			m.Err = status.Error(codes.Internal, "the server panicked")
		}
		s.opts.Audit(ctx, m)
		if cause != nil {
			panic(cause)
		}
	}
}

// author returns the name of a caller for Resource.author, "" if authors are not recorded.
func (s *Server) author(c registry.Caller) string {
	if s.opts.Author == nil || c == nil {
		return ""
	}
	return s.opts.Author(c)
}
