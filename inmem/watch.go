package inmem

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage"
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

// source gives watches what the store records.
type source struct {
	driver.Sequence
	store *store
}

var (
	_ driver.Source[position] = source{}
	_ driver.Prover[position] = source{}
)

func (s source) Run(ctx context.Context, ready func(position), publish func([]*driver.Event[position], position)) error {
	st := s.store
	st.mu.Lock()
	at, restored := st.at, st.restore
	reader, leave := st.history.read(at)
	st.mu.Unlock()
	ready(at)
	defer func() {
		st.mu.Lock()
		defer st.mu.Unlock()
		leave()
	}()
	for {
		st.mu.Lock()
		var events []*driver.Event[position]
		var wake <-chan struct{}
		gone := reader.at < st.history.from
		select {
		case <-restored:
			gone = true
		default:
		}
		switch {
		case gone:
		case reader.at < st.at:
			events = st.history.take(reader)
		default:
			wake = st.waiter()
		}
		st.mu.Unlock()
		if gone {
			return fmt.Errorf("%w: the store was restored", storage.ErrCompacted)
		}
		if ctx.Err() != nil {
			return nil // there may be something new for ever
		}
		if len(events) > 0 {
			publish(events, events[len(events)-1].At)
			continue
		}
		select {
		case <-wake:
		case <-restored:
		case <-ctx.Done():
			return nil
		}
	}
}

func (s source) History(from position, _ *driver.Filter) driver.History[position] {
	return driver.Pages(from, s.page)
}

func (s source) page(_ context.Context, from position, limit int) ([]*driver.Event[position], position, bool, error) {
	st := s.store
	st.mu.RLock()
	defer st.mu.RUnlock()
	if from < st.history.from || from > st.at {
		return nil, 0, false, fmt.Errorf("%w: the history kept begins after the watch's position", storage.ErrCompacted)
	}
	events := st.history.since(from, limit)
	end := from + position(len(events))
	return events, end, end < st.at, nil
}

// Newest implements driver.Prover. Run follows the store's end by itself.
func (s source) Newest(context.Context) (position, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	return s.store.at, nil
}
