package service

import (
	"cmp"
	"context"
	"errors"

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
		if m.Err = statusOf(ctx, *err); cause != nil {
			m.Err = status.Error(codes.Internal, "the server panicked")
		}
		s.opts.Audit(ctx, m)
		if cause != nil {
			panic(cause)
		}
	}
}

// statusOf returns the status error of a call. Expire and Reap return the error of the store, which their callers log.
func statusOf(ctx context.Context, err error) error {
	if err == nil || isStatus(err) {
		return err
	}
	if ended := ctx.Err(); ended != nil {
		return status.FromContextError(ended).Err()
	}
	for _, e := range storeErrors {
		if errors.Is(err, e.err) {
			return reasonError(e.code, e.reason, cmp.Or(e.text, err.Error()))
		}
	}
	return status.Error(codes.Internal, err.Error())
}

// author returns the name of a caller for Resource.author, "" if authors are not recorded.
func (s *Server) author(c registry.Caller) string {
	if s.opts.Author == nil || c == nil {
		return ""
	}
	return s.opts.Author(c)
}
