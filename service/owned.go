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

// maxParallelReads is the largest number of resources that one ListByOwner reads at the same time. Backends send reads that wait for one
// another's connection together.
const maxParallelReads = 16

// ListByOwner returns the resources that a resource owns and that the caller may see, in the order of their keys. Those of a type that is
// not registered are left out.
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
	t, tenancy, err := s.resolveList(req.GetOwner().GetType(), req.GetOwner().GetTenancy(), "")
	if err != nil {
		return nil, err
	}
	caller, err := s.caller(ctx, tenancy)
	if err != nil {
		return nil, err
	}
	if err := s.authStatus(ctx, t.MayList(caller, req.GetOwner().GetType(), tenancy)); err != nil {
		return nil, err
	}
	ids, err := s.backend.OwnerReferences(ctx, idIn(tenancy, req.GetOwner()))
	if err != nil {
		return nil, s.toStatus(ctx, "list by owner", err)
	}
	if ids, err = skipTo(req.GetContinue(), ids); err != nil {
		return nil, err
	}
	owned, err := s.readOwned(ctx, s.newVisibility(caller, tenancy), ids, int(req.GetLimit()))
	if err != nil {
		return nil, s.toStatus(ctx, "list by owner", err)
	}
	if limit := int(req.GetLimit()); limit > 0 && len(owned) > limit {
		owned = owned[:limit]
		next, err := encodeToken(owned[limit-1].GetId())
		return &resourcepb.ListByOwnerResponse{Resources: owned, Continue: next}, err
	}
	return &resourcepb.ListByOwnerResponse{Resources: owned}, nil
}

// readOwned returns the resources with these ids that the caller may see; if there is a limit, the first ones, and at least one more than the
// limit if there are so many. So the last one of a page is one that may be named in a token, and there is a token only if more is seen.
func (s *Server) readOwned(ctx context.Context, who *visibility, ids []*resourcepb.ID, limit int) (kept []*resourcepb.Resource, err error) {
	for len(ids) > 0 && (limit == 0 || len(kept) <= limit) {
		portion := ids
		if limit > 0 {
			portion = ids[:min(len(ids), max(limit+1-len(kept), maxParallelReads))]
		}
		ids = ids[len(portion):]
		read, err := s.readIDs(ctx, portion)
		if err != nil {
			return nil, err
		}
		for _, res := range read {
			child, err := s.resolve(res.GetId().GetType())
			if err != nil {
				continue
			}
			may, err := who.mayRead(ctx, child, res)
			if err != nil {
				return nil, err
			}
			if may {
				kept = append(kept, res)
			}
		}
	}
	return kept, nil
}

// readIDs returns the resources with these ids, as far as they are still there, in the order of the ids.
func (s *Server) readIDs(ctx context.Context, ids []*resourcepb.ID) ([]*resourcepb.Resource, error) {
	all := make([]*resourcepb.Resource, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(maxParallelReads)
	for i, id := range ids {
		g.Go(func() (err error) {
			all[i], err = s.readCurrent(ctx, consistency(ctx), id)
			if errors.Is(err, storage.ErrNotFound) && consistency(ctx) != storage.StrongConsistency {
				all[i], err = s.readCurrent(ctx, storage.StrongConsistency, id) // it may just not have come to the replica yet
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

// skipTo returns those of some ids, which it may change, that come behind a page with that continue token: the last id of the page.
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

// errBadToken refuses a continue token that no answer held.
var errBadToken = invalid("continue invalid: it is no token of this listing")

// parseToken returns the last id of a page with that continue token.
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

// encodeToken returns the continue token of a page that ends with an id.
func encodeToken(last *resourcepb.ID) (string, error) {
	last = proto.CloneOf(last)
	last.Uid = ""
	raw, err := proto.Marshal(last)
	return base64.RawURLEncoding.EncodeToString(raw), err
}

// compareKeys compares the keys of two ids, in the order in which stores list them.
func compareKeys(a, b *resourcepb.ID) int {
	return cmp.Or(
		cmp.Compare(a.GetType().GetGroup(), b.GetType().GetGroup()),
		cmp.Compare(a.GetType().GetKind(), b.GetType().GetKind()),
		cmp.Compare(a.GetTenancy().GetPartition(), b.GetTenancy().GetPartition()),
		cmp.Compare(a.GetTenancy().GetNamespace(), b.GetTenancy().GetNamespace()),
		cmp.Compare(a.GetName(), b.GetName()),
	)
}
