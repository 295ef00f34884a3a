package service

import (
	"context"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/ranges"
	"github.com/ashlar-dev/storage/resourcepb"
)

// maxKinds is the maximum number of kinds of a group that Kinds looks at.
const maxKinds = 256

// Kinds returns the stored kinds of a group that are valid names and equal kind when upper and lower case are ignored. It returns none on a store
// without history, and none beyond the first 256 kinds of the group. It is for package web, and checks no permission.
func (s *Server) Kinds(ctx context.Context, group, kind string) (found []string, err error) {
	h, ok := storage.As[history.Historian](s.backend)
	if !ok {
		return nil, nil
	}
	rest := ranges.Of(&key.Filter{Group: group, Kind: storage.Wildcard})
	for range maxKinds {
		scan, err := h.Scan(ctx, rest, history.ScanOptions{Limit: 1, KeysOnly: true})
		if err != nil {
			return nil, s.toStatus(ctx, "look for a kind", s.hideDamaged(ctx, err))
		}
		if len(scan.Records) == 0 {
			break
		}
		stored := scan.Records[0].Resource.GetId().GetType()
		if strings.EqualFold(stored.GetKind(), kind) {
			if _, valid := s.types.Load().Resolve(&resourcepb.Type{Group: group, GroupVersion: "v1", Kind: stored.GetKind()}); valid {
				found = append(found, stored.GetKind())
			}
		}
		rest.From = ranges.Of(&key.Filter{Group: group, Kind: stored.GetKind(), Partition: storage.Wildcard, Namespace: storage.Wildcard}).To
	}
	return found, nil
}
