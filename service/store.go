package service

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// store writes a resource at the version that was read. If another incarnation has replaced that resource since, the result is ErrCASFailure: the uid
// of the request, if any, was compared with the resource that was read.
func (s *Server) store(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if err := checkSize(res); err != nil {
		return nil, err
	}
	stored, err := s.backend.WriteCAS(ctx, res)
	if errors.Is(err, storage.ErrWrongUid) {
		return nil, storage.ErrCASFailure
	}
	return stored, err
}
