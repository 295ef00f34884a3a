package inmem

import (
	"context"
	"slices"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Children implements driver.Driver.
func (s *store) Children(_ context.Context, k driver.Key, uid string) ([]*resourcepb.ID, error) {
	items := s.children(owner{k, uid})
	slices.SortFunc(items, func(a, b *item) int { return a.key.Compare(b.key) })
	var ids []*resourcepb.ID
	for _, it := range items {
		ids = append(ids, codec.CloneID(it.resource.Id))
	}
	return ids, nil
}

func (s *store) children(ref owner) []*item {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var items []*item
	for it := range s.owned[ref] {
		items = append(items, it)
	}
	return items
}
