package inmem

import (
	"context"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Get implements driver.Driver. Both consistencies are the same here.
func (s *store) Get(_ context.Context, _ storage.ReadConsistency, k driver.Key) (*resourcepb.Resource, error) {
	it := s.get(k)
	if it == nil {
		return nil, nil
	}
	return codec.Clone(it.resource), nil
}
