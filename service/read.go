package service

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// Read returns one resource. With the metadata "x-consul-consistency-mode: consistent" the answer is linearizable.
// The group version "*" means whichever is stored.
func (s *Server) Read(ctx context.Context, req *resourcepb.ReadRequest) (*resourcepb.ReadResponse, error) {
	if err := checkID("id", req.GetId()); err != nil {
		return nil, err
	}
	if anyType(req.GetId().GetType()) {
		return s.readAny(ctx, req.GetId())
	}
	t, err := s.resolve(req.GetId().GetType())
	if err != nil {
		return nil, err
	}
	if err := checkScope(t, req.GetId().GetType(), req.GetId().GetTenancy(), false); err != nil {
		return nil, err
	}
	tenancy := fillTenancy(t.Scope, req.GetId().GetTenancy())
	caller, err := s.caller(ctx, tenancy)
	if err != nil {
		return nil, err
	}
	id := idIn(tenancy, req.GetId())
	needed := t.MayRead(caller, id, nil)
	if needed != nil && !errors.Is(needed, registry.ErrNeedResource) {
		return nil, s.authStatus(ctx, needed)
	}
	if err := s.checkExists(ctx, tenancy, codes.NotFound); err != nil {
		return nil, err
	}
	res, err := s.backend.Read(ctx, consistency(ctx), id)
	stored := res
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
		stored = mismatch.Stored // which group version there is, too, is for those only who may read it
	}
	if needed != nil && stored != nil {
		if err := s.authStatus(ctx, t.MayRead(caller, id, stored)); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, s.toStatus(ctx, "read", err)
	}
	return &resourcepb.ReadResponse{Resource: res}, nil
}
