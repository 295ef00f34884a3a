package inmem

import (
	"context"
	"slices"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// List implements driver.Driver.
func (s *store) List(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	tree, _, fence := s.snapshot()
	var err error
	if consistency == storage.StrongConsistency {
		if err = readError(ctx, fence); err != nil {
			return err
		}
	}
	ascend(tree, f, func(it *item) bool {
		if err = ctx.Err(); err == nil {
			err = rows.AddResource(codec.Clone(it.resource))
		}
		return err == nil
	})
	return err
}

// Get implements driver.Driver. Eventual reads return the newest state too.
func (s *store) Get(ctx context.Context, consistency storage.ReadConsistency, k driver.Key) (*resourcepb.Resource, error) {
	it, fence := s.get(k)
	if fence != nil && consistency == storage.StrongConsistency {
		if err := fence.ReadError(ctx); err != nil {
			return nil, err
		}
	}
	if it == nil {
		return nil, nil
	}
	return codec.Clone(it.resource), nil
}

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
	for it := range s.itemsByOwner[ref] {
		items = append(items, it)
	}
	return items
}
