package inmem

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/tidwall/btree"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/internal/key"
	"github.com/ashlar-dev/storage/internal/message"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchList implements storage.Backend.
func (b *Backend) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	filter, err := check.Filter(typ, tenancy, namePrefix)
	if err := b.begin(ctx, err); err != nil {
		return nil, err
	}
	mark, err := b.feed.Start(ctx)
	if err != nil {
		return nil, err
	}
	tree, at := b.store.snapshot()
	return b.feed.Watch(mark, filter, feed.Expiring(&snapshot{tree: tree, filter: filter}), at), nil
}

// WatchFrom implements storage.Resumer.
func (b *Backend) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, from string) (storage.Watch, error) {
	filter, badFilter := check.Filter(typ, tenancy, namePrefix)
	at, badCursor := b.store.parseCursor(from)
	if err := b.begin(ctx, badFilter, badCursor); err != nil {
		return nil, err
	}
	return b.feed.Resume(ctx, filter, at, from)
}

func (s *store) cursor(at position) string {
	return cursor.Encode(cursor.Watch, s.storeID(), binary.BigEndian.AppendUint64(nil, at))
}

func (s *store) parseCursor(text string) (position, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	payload, err := cursor.Decode(cursor.Watch, s.id, text)
	if err != nil {
		return 0, err
	}
	if len(payload) != 8 {
		return 0, fmt.Errorf("%w: this is no cursor", storage.ErrInvalid)
	}
	at := binary.BigEndian.Uint64(payload)
	if at > s.at {
		return 0, fmt.Errorf("%w: the cursor is ahead of the store", storage.ErrCompacted)
	}
	if at < s.history.from {
		return 0, fmt.Errorf("%w: the history kept begins after the cursor", storage.ErrCompacted)
	}
	return at, nil
}

// snapshot gives the matches in a copy of the tree, a few at a time, so that what waits is small and the copy is not visited
// while anybody else waits.
type snapshot struct {
	tree   *btree.BTreeG[*item]
	filter key.Filter
	after  *key.Key
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
	return message.Clone(it.resource), nil
}

func (s *snapshot) Close() { s.tree, s.some, s.ended = nil, nil, true }

// source gives the feed what the store records.
type source struct{ store *store }

var _ feed.Prover[position] = source{}

func (s source) Run(ctx context.Context, ready func(position), publish func([]*feed.Event[position], position)) error {
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
		var events []*feed.Event[position]
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

func (s source) History(from position, _ *key.Filter) feed.History[position] {
	return feed.Pages(from, s.page)
}

func (s source) page(_ context.Context, from position, limit int) ([]*feed.Event[position], position, bool, error) {
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

// Newest implements feed.Prover. Run follows the store's end by itself.
func (s source) Newest(context.Context) (position, error) {
	s.store.mu.RLock()
	defer s.store.mu.RUnlock()
	return s.store.at, nil
}

func (s source) Reached(at, target position) bool                      { return at >= target }
func (s source) Contains(at position, ev *feed.Event[position]) bool   { return ev.At <= at }
func (s source) Advance(_ position, ev *feed.Event[position]) position { return ev.At }
func (s source) Merge(at, end position) position                       { return max(at, end) }
func (s source) Cursor(at position) string                             { return s.store.cursor(at) }
