package inmem

import (
	"context"
	"io"
	"time"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Snapshot implements driver.Snapshotter.
func (h *handle) Snapshot(_ context.Context, _ time.Time, f *driver.Filter) (driver.Snapshot, position, error) {
	tree, at := h.snapshot()
	return feed.Expiring(&snapshot{tree: tree, filter: *f}), at, nil
}

// snapshot gives the matches in a copy of the tree, a few at a time, so that what waits is small and the copy is not visited
// while anybody else waits.
type snapshot struct {
	tree   *btree.BTreeG[*item]
	filter driver.Filter
	after  *driver.Key
	some   []*item
	ended  bool
}

func (s *snapshot) Next(context.Context) (*resourcepb.Resource, error) {
	if len(s.some) == 0 && !s.ended {
		const few = 256
		ascend(s.tree, &s.filter, s.after, func(it *item) bool {
			s.some = append(s.some, it)
			return len(s.some) < few
		})
		s.ended = len(s.some) < few
	}
	if len(s.some) == 0 {
		return nil, io.EOF
	}
	it := s.some[0]
	s.some = s.some[1:]
	s.after = &it.key
	return codec.Clone(it.resource), nil
}

func (s *snapshot) Close() { s.tree, s.some, s.ended = nil, nil, true }
