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

// readsAtOnce is the largest number of resources that one ListByOwner reads at the same time. Backends send reads that wait for one
// another's connection together.
const readsAtOnce = 16

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
	t, tenancy, err := s.scopeOf(req.GetOwner().GetType(), req.GetOwner().GetTenancy(), "")
	if err != nil {
		return nil, err
	}
	caller, err := s.caller(ctx, tenancy)
	if err != nil {
		return nil, err
	}
	if err := s.allowed(ctx, t.MayList(caller, req.GetOwner().GetType(), tenancy)); err != nil {
		return nil, err
	}
	ids, err := s.backend.OwnerReferences(ctx, idIn(tenancy, req.GetOwner()))
	if err != nil {
		return nil, s.told(ctx, "list by owner", err)
	}
	ids, next, err := pageOf(ids, req.GetContinue(), int(req.GetLimit()))
	if err != nil {
		return nil, err
	}
	owned, err := s.readAll(ctx, ids)
	if err != nil {
		return nil, s.told(ctx, "list by owner", err)
	}
	who, kept := s.readers(caller, tenancy), owned[:0]
	for _, res := range owned {
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
	return &resourcepb.ListByOwnerResponse{Resources: kept, Continue: next}, nil
}

// readAll returns the resources with these ids, as far as they are still there, in the order of the ids.
func (s *Server) readAll(ctx context.Context, ids []*resourcepb.ID) ([]*resourcepb.Resource, error) {
	all := make([]*resourcepb.Resource, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readsAtOnce)
	for i, id := range ids {
		g.Go(func() (err error) {
			all[i], err = s.current(ctx, consistency(ctx), id)
			if errors.Is(err, storage.ErrNotFound) && consistency(ctx) != storage.StrongConsistency {
				all[i], err = s.current(ctx, storage.StrongConsistency, id) // it may just not have come to the replica yet
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

// pageOf returns the ids behind a continue token, at most limit if that is not 0, and the token of the next page. A token is the last id of
// a page.
func pageOf(ids []*resourcepb.ID, token string, limit int) (page []*resourcepb.ID, next string, err error) {
	if token != "" {
		last := &resourcepb.ID{}
		raw, err := base64.RawURLEncoding.DecodeString(token)
		if err == nil {
			err = proto.Unmarshal(raw, last)
		}
		if err != nil || last.GetName() == "" {
			return nil, "", invalid("continue invalid: it is no token of this listing")
		}
		ids = slices.DeleteFunc(ids, func(id *resourcepb.ID) bool { return compareKeys(id, last) <= 0 })
	}
	if limit == 0 || len(ids) <= limit {
		return ids, "", nil
	}
	last := proto.CloneOf(ids[limit-1])
	last.Uid = ""
	raw, err := proto.Marshal(last)
	return ids[:limit], base64.RawURLEncoding.EncodeToString(raw), err
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
