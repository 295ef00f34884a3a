package service

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"slices"

	"golang.org/x/sync/errgroup"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// maxParallelReads is the maximum number of concurrent reads of one ListByOwner. Backends send reads that wait for the same connection
// together.
const maxParallelReads = 16

// ListByOwner returns the resources that a resource owns and that the caller may read, ordered by key. Resources of unregistered types are
// omitted.
func (s *Server) ListByOwner(ctx context.Context, req *resourcepb.ListByOwnerRequest) (*resourcepb.ListByOwnerResponse, error) {
	if err := checkID("owner", req.GetOwner()); err != nil {
		return nil, err
	}
	if req.GetOwner().GetUid() == "" {
		return nil, invalid("owner.uid is required")
	}
	if req.GetLimit() < 0 {
		return nil, invalid("limit invalid: it is negative")
	}
	v, err := s.openView(ctx, req.GetOwner().GetType(), cmp.Or(req.GetOwner().GetTenancy(), &resourcepb.Tenancy{}), "")
	if err != nil {
		return nil, err
	}
	ids, err := s.backend.OwnerReferences(ctx, idIn(v.tenancy, req.GetOwner()))
	if err != nil {
		return nil, s.toStatus(ctx, "list by owner", err)
	}
	if ids, err = skipTo(req.GetContinue(), ids); err != nil {
		return nil, err
	}
	owned, page, err := s.readOwned(ctx, v, ids, int(req.GetLimit()))
	if err != nil {
		return nil, s.toStatus(ctx, "list by owner", s.hideDamaged(ctx, err)) // permission to read the owner does not include its children
	}
	if page > 0 && len(owned) > page {
		owned = owned[:page]
		next, err := encodeToken(owned[page-1].GetId())
		return &resourcepb.ListByOwnerResponse{Resources: owned, Continue: next}, err
	}
	return &resourcepb.ListByOwnerResponse{Resources: owned}, nil
}

// readOwned returns the visible resources with these ids. With a limit it reads on until it has a page, which ends at the limit or at
// maxPageBytes, and one more resource, or all. So the continue token names a visible resource, and a page has a token only if another visible
// resource follows. page is the number of resources of a full page, or 0.
func (s *Server) readOwned(ctx context.Context, v *view, ids []*resourcepb.ID, limit int) (owned []*resourcepb.Resource, page int, err error) {
	size := 0
	for len(ids) > 0 && (page == 0 || len(owned) == page) {
		portion := ids
		if limit > 0 || s.opts.MaxList > 0 {
			portion = ids[:min(len(ids), maxParallelReads)]
		}
		ids = ids[len(portion):]
		read, err := s.readIDs(ctx, portion)
		if err != nil {
			return nil, 0, err
		}
		for _, res := range read {
			child, err := s.resolve(res.GetId().GetType())
			if err != nil {
				continue
			}
			may, err := v.mayRead(ctx, child, res)
			if err != nil {
				return nil, 0, err
			}
			if !may {
				continue
			}
			owned = append(owned, res)
			if size += sizeIn(res); page == 0 && limit > 0 && (len(owned) == limit || size >= maxPageBytes) {
				page = len(owned)
			}
			if limit == 0 && s.opts.MaxList > 0 && size > s.opts.MaxList {
				return nil, 0, s.tooLarge()
			}
		}
	}
	return owned, page, nil
}

// readIDs returns the resources with these ids that still exist, in the order of the ids.
func (s *Server) readIDs(ctx context.Context, ids []*resourcepb.ID) ([]*resourcepb.Resource, error) {
	all := make([]*resourcepb.Resource, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallelReads)
	for i, id := range ids {
		g.Go(func() (err error) {
			all[i], err = s.readCurrent(ctx, consistency(ctx), id)
			if errors.Is(err, storage.ErrNotFound) && consistency(ctx) != storage.StrongConsistency {
				all[i], err = s.readCurrent(ctx, storage.StrongConsistency, id) // the replica may lag behind
			}
			if errors.Is(err, storage.ErrNotFound) {
				return nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(res *resourcepb.Resource) bool { return res == nil }), nil
}

// skipTo returns the ids after the page whose continue token is given. It may modify ids.
func skipTo(token string, ids []*resourcepb.ID) ([]*resourcepb.ID, error) {
	if token == "" {
		return ids, nil
	}
	last, err := parseToken(token)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id *resourcepb.ID) bool { return compareKeys(id, last) <= 0 }), nil
}

// errBadToken rejects a malformed or foreign continue token.
var errBadToken = refusal("continue invalid: it is no token of this listing")

// parseToken returns the last id of the page whose continue token is given.
func parseToken(token string) (*resourcepb.ID, error) {
	last := &resourcepb.ID{}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err == nil {
		err = proto.Unmarshal(raw, last)
	}
	if err != nil || last.GetName() == "" {
		return nil, errBadToken
	}
	return last, nil
}

// encodeToken returns the continue token of a page whose last id is given.
func encodeToken(last *resourcepb.ID) (string, error) {
	last = proto.CloneOf(last)
	last.Uid = ""
	raw, err := proto.Marshal(last)
	return base64.RawURLEncoding.EncodeToString(raw), err
}
