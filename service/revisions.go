package service

import (
	"context"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Revisions returns the oldest revision at which the store can be read, and the newest one. They are numbers of the whole store, for those
// who may list the type in the tenancy: who may see nothing of a store does not learn how much is going on in it.
func (s *Server) Revisions(ctx context.Context, req *resourcepb.RevisionsRequest) (*resourcepb.RevisionsResponse, error) {
	if _, err := s.openHistoryView(ctx, req.GetType(), req.GetTenancy(), ""); err != nil {
		return nil, err
	}
	h, err := s.historian()
	if err != nil {
		return nil, err
	}
	oldest, newest, err := h.Revisions(ctx)
	if err != nil {
		return nil, s.toStatus(ctx, "ask for the revisions", err)
	}
	return &resourcepb.RevisionsResponse{Oldest: oldest, Newest: newest}, nil
}
