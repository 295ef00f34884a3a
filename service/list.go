package service

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/registry"
	"github.com/ashlar-dev/storage/resourcepb"
)

// List returns the resources of a type and tenancy, each unit of which may be "*", that the caller may see. Those of another group version
// of the type are left out.
func (s *Server) List(ctx context.Context, req *resourcepb.ListRequest) (*resourcepb.ListResponse, error) {
	if req.GetType() == nil {
		return nil, invalid("type is required")
	}
	if req.GetTenancy() == nil {
		return nil, invalid("tenancy is required")
	}
	if req.GetLimit() < 0 {
		return nil, invalid("limit invalid: it is negative")
	}
	if req.GetContinue() != "" && req.GetLimit() == 0 {
		return nil, invalid("limit is required with continue")
	}
	t, tenancy, err := s.scopeOf(req.GetType(), req.GetTenancy(), req.GetNamePrefix())
	if err != nil {
		return nil, err
	}
	caller, err := s.caller(ctx, tenancy)
	if err != nil {
		return nil, err
	}
	if err := s.allowed(ctx, t.MayList(caller, req.GetType(), tenancy)); err != nil {
		return nil, err
	}
	listed, err := s.listed(ctx, req, tenancy)
	if err != nil {
		return nil, s.told(ctx, "list", err)
	}
	listed.Resources, err = s.visible(ctx, s.readers(caller, tenancy), t, req.GetType(), listed.Resources)
	return listed, err
}

// scopeOf checks the type and the tenancy of a list or a watch, and fills the tenancy in.
func (s *Server) scopeOf(name *resourcepb.Type, asked *resourcepb.Tenancy, prefix string) (*registry.Type, *resourcepb.Tenancy, error) {
	if err := checkTenancy("tenancy", asked, true); err != nil {
		return nil, nil, err
	}
	if err := checkPrefix(prefix); err != nil {
		return nil, nil, err
	}
	t, err := s.resolve(name)
	if err != nil {
		return nil, nil, err
	}
	if err := checkScope(t, name, asked, true); err != nil {
		return nil, nil, err
	}
	return t, completed(t.Scope, asked), nil
}

// listed is what the store lists: everything, or a page if the request has a limit.
func (s *Server) listed(ctx context.Context, req *resourcepb.ListRequest, tenancy *resourcepb.Tenancy) (*resourcepb.ListResponse, error) {
	name := storage.UnversionedTypeFrom(req.GetType())
	if req.GetLimit() == 0 {
		all, err := s.backend.List(ctx, consistency(ctx), name, tenancy, req.GetNamePrefix())
		return &resourcepb.ListResponse{Resources: all}, err
	}
	pager, ok := storage.As[storage.Pager](s.backend)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "the store cannot list in pages: ask without a limit")
	}
	page, err := pager.ListPage(ctx, name, tenancy, req.GetNamePrefix(), storage.ListOptions{
		Consistency: consistency(ctx), Limit: int(req.GetLimit()), Continue: req.GetContinue(),
	})
	return &resourcepb.ListResponse{Resources: page.Resources, Continue: page.Continue, Cursor: page.Cursor}, err
}

// visible returns those of some resources that the caller may see and that are of the group version of name. The slice is reused.
func (s *Server) visible(ctx context.Context, who *readers, t *registry.Type, name *resourcepb.Type, all []*resourcepb.Resource) ([]*resourcepb.Resource, error) {
	kept := all[:0]
	for _, res := range all {
		if res.GetId().GetType().GetGroupVersion() != name.GetGroupVersion() {
			continue
		}
		may, err := who.mayRead(ctx, t, res)
		if err != nil {
			return nil, err
		}
		if may {
			kept = append(kept, res)
		}
	}
	clear(all[len(kept):])
	return kept, nil
}
