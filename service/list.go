package service

import (
	"context"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// List returns the resources of a type and tenancy, each unit of which may be "*", that the caller may see. Those of another group version
// of the type are left out, unless the request's is "*", which means all, and allows the kind "*", or the group and the kind.
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
	t, tenancy, err := s.resolveList(req.GetType(), req.GetTenancy(), req.GetNamePrefix())
	if err != nil {
		return nil, err
	}
	caller, err := s.caller(ctx, tenancy)
	if err != nil {
		return nil, err
	}
	if err := s.authStatus(ctx, t.MayList(caller, req.GetType(), tenancy)); err != nil {
		return nil, err
	}
	list := s.listAll
	if req.GetLimit() > 0 {
		list = s.listPage
	}
	listed, err := list(ctx, req, t, tenancy, s.newVisibility(caller, tenancy))
	if err != nil {
		return nil, s.toStatus(ctx, "list", err)
	}
	return listed, nil
}

// resolveList checks the type and the tenancy of a list or a watch, and fills the tenancy in.
func (s *Server) resolveList(name *resourcepb.Type, asked *resourcepb.Tenancy, prefix string) (*registry.Type, *resourcepb.Tenancy, error) {
	if err := checkTenancy("tenancy", asked, true); err != nil {
		return nil, nil, err
	}
	if err := checkPrefix(prefix); err != nil {
		return nil, nil, err
	}
	t, err := s.resolveAny(name, asked)
	if err != nil {
		return nil, nil, err
	}
	if err := checkScope(t, name, asked, true); err != nil {
		return nil, nil, err
	}
	return t, fillTenancy(t.Scope, asked), nil
}

// listAll lists everything.
func (s *Server) listAll(
	ctx context.Context, req *resourcepb.ListRequest, t *registry.Type, tenancy *resourcepb.Tenancy, who *visibility,
) (*resourcepb.ListResponse, error) {
	all, err := s.backend.List(ctx, consistency(ctx), storage.UnversionedTypeFrom(req.GetType()), tenancy, req.GetNamePrefix())
	if err != nil {
		return nil, err
	}
	kept, _, err := visible(ctx, who, t, req, all)
	return &resourcepb.ListResponse{Resources: kept}, err
}

// listPage lists a page. The store's continue token may name the last resource of its page. So a page ends with one that the caller may
// see: what comes behind that in the store's page is left to the next one.
func (s *Server) listPage(
	ctx context.Context, req *resourcepb.ListRequest, t *registry.Type, tenancy *resourcepb.Tenancy, who *visibility,
) (*resourcepb.ListResponse, error) {
	pager, ok := storage.As[storage.Pager](s.backend)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "the store cannot list in pages: ask without a limit")
	}
	opts := storage.ListOptions{Consistency: consistency(ctx), Limit: int(req.GetLimit()), Continue: req.GetContinue()}
	for {
		page, err := pager.ListPage(ctx, storage.UnversionedTypeFrom(req.GetType()), tenancy, req.GetNamePrefix(), opts)
		if err != nil {
			return nil, err
		}
		read := len(page.Resources)
		kept, end, err := visible(ctx, who, t, req, page.Resources)
		if err != nil {
			return nil, err
		}
		switch {
		case end == read || page.Continue == "" && len(kept) < int(req.GetLimit()):
			return &resourcepb.ListResponse{Resources: kept, Continue: page.Continue, Cursor: page.Cursor}, nil
		case end > 0:
			opts.Limit = end // the same page again, but for what is behind its last resource that is seen
		default:
			opts.Limit, opts.Continue = max(opts.Limit, minHiddenPage), page.Continue
		}
	}
}

// minHiddenPage is the smallest number of resources that are asked for once a page had none that the caller may see.
const minHiddenPage = 100

// visible returns those of some resources that the caller may see and that are of the group version of the request, but not more than its
// limit, and the place behind the last resource that the caller may know of. The slice is reused.
func visible(
	ctx context.Context, who *visibility, t *registry.Type, req *resourcepb.ListRequest, all []*resourcepb.Resource,
) (kept []*resourcepb.Resource, end int, err error) {
	kept = all[:0]
	for i, res := range all {
		foreign := !matchesType(req.GetType(), res.GetId().GetType())
		var may bool
		if foreign {
			may, err = who.mayName(ctx, t, res.GetId())
		} else {
			may, err = who.mayRead(ctx, t, res)
		}
		if err != nil {
			return nil, 0, err
		}
		if may {
			end = i + 1
		}
		if may && !foreign {
			kept = append(kept, res)
			if len(kept) == int(req.GetLimit()) {
				break
			}
		}
	}
	clear(all[len(kept):])
	return kept, end, nil
}
