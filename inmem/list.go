package inmem

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/codec"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/resourcepb"
)

// List implements driver.Driver.
func (s *store) List(ctx context.Context, _ storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	tree, _ := s.snapshot()
	var err error
	ascend(tree, f, nil, func(it *item) bool {
		if err = ctx.Err(); err == nil {
			err = rows.AddResource(codec.Clone(it.resource))
		}
		return err == nil
	})
	return err
}

// Get implements driver.Driver. All reads are strong.
func (s *store) Get(_ context.Context, _ storage.ReadConsistency, k driver.Key) (*resourcepb.Resource, error) {
	it := s.get(k)
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

// Page implements driver.Pager. All pages of a listing show one snapshot. A continue token holds the key of the last
// resource and the id of the listing.
func (s *store) Page(ctx context.Context, _ storage.ReadConsistency, f *driver.Filter, from []byte, limit int) (driver.ListedPage[position], error) {
	none := driver.ListedPage[position]{}
	var l *listing
	var id [16]byte
	var after *driver.Key
	if from == nil {
		tree, at := s.snapshot()
		l = &listing{tree: tree, at: at}
		_, _ = rand.Read(id[:]) // never fails
	} else {
		k, err := key.Parse(from[min(len(id), len(from)):])
		if err != nil {
			return none, fmt.Errorf("%w: malformed continue token", storage.ErrInvalid)
		}
		id, after = [16]byte(from), &k
		if l = s.listings.renew(id); l == nil {
			return none, fmt.Errorf("%w: the listing expired or its store was closed", storage.ErrCompacted)
		}
	}
	page := driver.ListedPage[position]{At: l.at}
	bytes, more := 0, false
	var last driver.Key
	// Copy the tree again, because two callers may read pages of one listing at once.
	ascend(s.listings.copyOf(l), f, after, func(it *item) bool {
		if len(page.Resources) == limit || bytes > driver.PageBytes || ctx.Err() != nil {
			more = true
			return false
		}
		bytes += codec.Size(it.resource)
		last = it.key
		page.Resources = append(page.Resources, codec.Clone(it.resource))
		return true
	})
	if err := ctx.Err(); err != nil {
		return none, err
	}
	if !more {
		s.listings.markComplete(id)
		return page, nil
	}
	if err := s.listings.add(id, l); err != nil {
		return none, err
	}
	page.Next = last.Append(id[:])
	return page, nil
}

// Snapshot implements driver.Snapshotter.
func (s *store) Snapshot(_ context.Context, _ time.Time, f *driver.Filter) (driver.Snapshot, position, error) {
	tree, at := s.snapshot()
	return feed.Expiring(&snapshot{tree: tree, filter: *f}), at, nil
}

// snapshot returns the matches in a copy of the tree. It buffers a few at a time, so the buffer stays small and the
// copy is not visited during a wait.
type snapshot struct {
	tree   *btree.BTreeG[*item]
	filter driver.Filter
	after  *driver.Key
	buffer []*item
	atEnd  bool
}

func (s *snapshot) Next(context.Context) (*resourcepb.Resource, error) {
	if len(s.buffer) == 0 && !s.atEnd {
		const batchSize = 256
		ascend(s.tree, &s.filter, s.after, func(it *item) bool {
			s.buffer = append(s.buffer, it)
			return len(s.buffer) < batchSize
		})
		s.atEnd = len(s.buffer) < batchSize
	}
	if len(s.buffer) == 0 {
		return nil, io.EOF
	}
	it := s.buffer[0]
	s.buffer = s.buffer[1:]
	s.after = &it.key
	return codec.Clone(it.resource), nil
}

func (s *snapshot) Close() { s.tree, s.buffer, s.atEnd = nil, nil, true }
