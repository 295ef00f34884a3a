package service

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/ranges"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service/registry"
)

// maxKinds is the maximum number of kinds of a group that Kinds looks at.
const maxKinds = 256

// Kinds returns kind if it is stored in a group, otherwise the stored kinds that are valid names, that equal it when upper and lower case are ignored,
// and that the caller may list in the tenancy. It returns none of those on a store without history, and if the group has more than 256 kinds, because it
// does not look at the others. The outgoing metadata of ctx identifies the caller, as with Client. It is for package web.
func (s *Server) Kinds(ctx context.Context, group, kind string, tenancy *resourcepb.Tenancy) (found []string, err error) {
	h, ok := storage.As[history.Historian](s.backend)
	if !ok {
		return nil, nil
	}
	// next returns the first stored kind in a range, "" if there is none.
	next := func(r history.Range) (string, error) {
		scan, err := h.Scan(ctx, r, history.ScanOptions{Limit: 1, KeysOnly: true})
		if err != nil {
			return "", s.toStatus(ctx, "look for a kind", s.hideDamaged(ctx, err))
		}
		if len(scan.Records) == 0 {
			return "", nil
		}
		return scan.Records[0].Resource.GetId().GetType().GetKind(), nil
	}
	if stored, err := next(rangeOfKind(group, kind)); err != nil || stored != "" && s.isKind(group, kind) {
		return []string{kind}, err
	}
	md, _ := metadata.FromOutgoingContext(ctx)
	caller, err := s.caller(metadata.NewIncomingContext(ctx, md), tenancy)
	if err != nil {
		return nil, err
	}
	rest := ranges.Of(&key.Filter{Group: group, Kind: storage.Wildcard})
	for range maxKinds {
		stored, err := next(rest)
		if err != nil || stored == "" {
			return found, err
		}
		if strings.EqualFold(stored, kind) && s.mayListKind(caller, group, stored, tenancy) {
			found = append(found, stored)
		}
		rest.From = rangeOfKind(group, stored).To
	}
	return nil, nil
}

// isKind reports whether a kind has a valid name.
func (s *Server) isKind(group, kind string) bool {
	_, valid := s.types.Load().Resolve(&resourcepb.Type{Group: group, GroupVersion: "v1", Kind: kind})
	return valid
}

// mayListKind reports whether the caller may list a kind with a valid name. Other callers do not learn that it is stored.
func (s *Server) mayListKind(caller registry.Caller, group, kind string, tenancy *resourcepb.Tenancy) bool {
	typ := &resourcepb.Type{Group: group, GroupVersion: "v1", Kind: kind}
	t, valid := s.types.Load().Resolve(typ)
	return valid && t.MayList(caller, typ, tenancy) == nil
}

func rangeOfKind(group, kind string) history.Range {
	return ranges.Of(&key.Filter{Group: group, Kind: kind, Partition: storage.Wildcard, Namespace: storage.Wildcard})
}
