package service

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// List returns the resources of a type and tenancy that the caller may read. Each unit of the tenancy may be "*". Resources of another group
// version of the type are converted, or omitted if the registry has no conversion. The group version "*" selects all versions; with it the kind, or the group and the kind, may be "*" too.
func (s *Server) List(ctx context.Context, req *resourcepb.ListRequest) (*resourcepb.ListResponse, error) {
	if req.GetLimit() < 0 {
		return nil, invalid("limit invalid: it is negative")
	}
	if req.GetContinue() != "" && req.GetLimit() == 0 {
		return nil, refusal("limit is required with continue")
	}
	v, err := s.openView(ctx, req.GetType(), req.GetTenancy(), req.GetNamePrefix())
	if err != nil {
		return nil, err
	}
	list := v.listAll
	if req.GetLimit() > 0 {
		list = v.listPage
	}
	listed, err := list(ctx, req)
	if err != nil {
		return nil, s.toStatus(ctx, "list", v.hideDamaged(ctx, err))
	}
	return listed, nil
}

// listAll lists without pages. It reads pages with Options.MaxList, so that it can end before it has read a list that is too large, and if a
// resource is damaged.
func (v *view) listAll(ctx context.Context, req *resourcepb.ListRequest) (*resourcepb.ListResponse, error) {
	name := storage.UnversionedTypeFrom(v.name)
	pager, ok := storage.As[storage.Pager](v.server.backend)
	if v.server.opts.MaxList == 0 || !ok {
		all, err := v.server.backend.List(ctx, consistency(ctx), name, v.tenancy, req.GetNamePrefix())
		if err == nil {
			page, err := v.filter(ctx, all, 0)
			return &resourcepb.ListResponse{Resources: page.resources}, err
		}
		if damaged := (*storage.DamagedError)(nil); !ok || !errors.As(err, &damaged) {
			return nil, err
		}
	}
	out, size := &resourcepb.ListResponse{}, 0
	for opts := (storage.ListOptions{Consistency: consistency(ctx), SkipDamaged: v.skipDamaged(ctx)}); ; {
		page, err := pager.ListPage(ctx, name, v.tenancy, req.GetNamePrefix(), opts)
		if err != nil {
			return nil, err
		}
		visible, err := v.filter(ctx, page.Resources, 0)
		if err != nil {
			return nil, err
		}
		for _, res := range visible.resources {
			size += sizeIn(res)
		}
		if v.server.opts.MaxList > 0 && size > v.server.opts.MaxList {
			return nil, v.server.tooLarge()
		}
		out.Resources = append(out.Resources, visible.resources...)
		if opts.Continue = page.Continue; opts.Continue == "" {
			return out, nil
		}
	}
}

// tooLarge is the error of a list that is larger than Options.MaxList.
func (s *Server) tooLarge() error {
	return reasonError(codes.ResourceExhausted, "TOO_LARGE", fmt.Sprintf("the list has more than %d bytes: list with a limit", s.opts.MaxList))
}

// listPage lists one page, of at most maxPageBytes and one resource. The store's continue token may name the last resource of its page. So a page ends with a resource that the caller
// may know of; the rest of the store's page belongs to the next page.
func (v *view) listPage(ctx context.Context, req *resourcepb.ListRequest) (*resourcepb.ListResponse, error) {
	pager, ok := storage.As[storage.Pager](v.server.backend)
	if !ok {
		return nil, status.Error(codes.Unimplemented, "the store cannot list in pages: list without a limit")
	}
	limit := int(req.GetLimit())
	opts := storage.ListOptions{Consistency: consistency(ctx), Limit: limit, Continue: req.GetContinue(), SkipDamaged: v.skipDamaged(ctx)}
	for {
		page, err := pager.ListPage(ctx, storage.UnversionedTypeFrom(v.name), v.tenancy, req.GetNamePrefix(), opts)
		if err != nil {
			return nil, err
		}
		read := len(page.Resources)
		visible, err := v.filter(ctx, page.Resources, limit)
		if err != nil {
			return nil, err
		}
		switch {
		case read > 0 && visible.end == read || page.Continue == "" && !visible.full:
			return &resourcepb.ListResponse{Resources: visible.resources, Continue: page.Continue, Cursor: page.Cursor}, nil
		case visible.end > 0:
			opts.Limit = visible.end // list the same page again, without the rest
		default:
			opts.Limit, opts.Continue = max(opts.Limit, minHiddenPage), page.Continue
		}
	}
}

// minHiddenPage is the minimum size of the next store page after a page without a visible resource.
const minHiddenPage = 100

// maxPageBytes is the size of the resources of a page after which it ends, whatever its limit: with another resource it is below 4 MiB, the
// default limit of gRPC's clients.
const maxPageBytes = 3<<20 - 64<<10

// sizeIn returns the size of a resource in a response.
func sizeIn(res *resourcepb.Resource) int {
	const tagAndLength = 6
	return proto.Size(res) + tagAndLength
}

// visiblePage is the visible part of a page of the store.
type visiblePage struct {
	resources []*resourcepb.Resource // it shares the array of the store's page
	end       int                    // the index after the last resource that the caller may know of
	full      bool                   // the page ended at its limit or at maxPageBytes
}

// filter returns the visible resources of the view's group version, at most limit (0 for all).
func (v *view) filter(ctx context.Context, all []*resourcepb.Resource, limit int) (visiblePage, error) {
	page := visiblePage{resources: all[:0]}
	size := 0
	for i, res := range all {
		foreign := !v.selects(res.GetId().GetType())
		var may bool
		var err error
		if foreign {
			may, err = v.mayName(ctx, res.GetId())
		} else {
			may, err = v.mayRead(ctx, v.t, res)
		}
		if err != nil {
			return visiblePage{}, err
		}
		if may {
			page.end = i + 1
		}
		if !may || foreign {
			continue
		}
		if res, err = v.t.FromStored(res); err != nil {
			return visiblePage{}, err
		}
		page.resources = append(page.resources, res)
		if limit == 0 {
			continue
		}
		size += sizeIn(res)
		if page.full = len(page.resources) == limit || size >= maxPageBytes; page.full {
			break
		}
	}
	clear(all[len(page.resources):])
	return page, nil
}
