package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/errand"
	"github.com/ashlar-dev/storage/resourcepb"
)

// WatchList implements [storage.Backend]. The snapshot is read page by page, at one revision, as the watch is consumed.
func (b *Backend) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) (storage.Watch, error) {
	f, err := check.Filter(typ, tenancy, namePrefix)
	ctx, done, err := b.begin(ctx, err)
	if err != nil {
		return nil, err
	}
	defer done()
	mark, err := b.feed.Start(ctx)
	if err != nil {
		return nil, b.watchError(ctx, err)
	}
	l := b.list(f, storage.StrongConsistency)
	if err := l.fetch(ctx); err != nil {
		mark.Release()
		return nil, b.watchError(ctx, err)
	}
	return b.feed.Watch(mark, f, newSnapshot(l), endOf(l.rev)), nil
}

// WatchFrom implements [storage.Resumer].
func (b *Backend) WatchFrom(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix, cursorText string) (storage.Watch, error) {
	f, badFilter := check.Filter(typ, tenancy, namePrefix)
	from, badCursor := decodeCursor(b.layout.store, cursorText)
	ctx, done, err := b.begin(ctx, badFilter, badCursor)
	if err != nil {
		return nil, err
	}
	defer done()
	w, err := b.feed.Resume(ctx, f, from, cursorText)
	if err != nil {
		return nil, b.watchError(ctx, err)
	}
	return w, nil
}

func (b *Backend) watchError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, storage.ErrClosed) || errors.Is(context.Cause(ctx), storage.ErrClosed):
		return storage.ErrClosed
	case ctx.Err() != nil:
		return fmt.Errorf("watch: %w", unavailable(ctx, err))
	}
	return fmt.Errorf("watch: %w", err)
}

// snapshot is a listing as the beginning of a watch.
type snapshot struct {
	l      *listing
	life   context.Context // ends with Close
	cancel context.CancelFunc
	chunk  errand.Errand[*clientv3.GetResponse]
}

func newSnapshot(l *listing) *snapshot {
	s := &snapshot{l: l}
	s.life, s.cancel = context.WithCancel(context.Background())
	return s
}

// Next implements feed.Snapshot.
func (s *snapshot) Next(ctx context.Context) (*resourcepb.Resource, error) {
	l := s.l
	for {
		res, _, err := l.first()
		if !errors.Is(err, errUsedUp) {
			return res, err
		}
		resp, err := s.chunk.Do(ctx, func() (*clientv3.GetResponse, error) { return s.read(l) })
		if err != nil {
			return nil, err
		}
		l.keep(resp)
	}
}

// read asks for the next chunk. A database that is away for a while is not the watcher's problem.
func (s *snapshot) read(l *listing) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(s.life, l.b.opts.Outage)
	defer cancel()
	ctx, done, err := l.b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	resp, err := l.read(ctx)
	if err != nil {
		return nil, l.b.watchError(ctx, err)
	}
	return resp, nil
}

// Close implements feed.Snapshot.
func (s *snapshot) Close() {
	s.cancel()
	s.l = nil // which a chunk that is still being read holds on to
}

// position is a place in the store's history: a revision, and within it, since a transaction changes several keys at one
// revision, the last key that is included.
type position struct {
	rev int64
	key string // endKey: the whole revision
}

// endKey is after every key, since no key begins with a byte that is not UTF-8.
const endKey = "\xff"

func endOf(rev int64) position { return position{rev, endKey} }

func (p position) less(o position) bool {
	return p.rev < o.rev || p.rev == o.rev && p.key < o.key
}

func encodeCursor(store cursor.StoreID, p position) string {
	payload := binary.BigEndian.AppendUint64(nil, uint64(p.rev))
	if p.key != endKey {
		payload = append(payload, p.key...)
	}
	return cursor.Encode(cursor.Watch, store, payload)
}

func decodeCursor(store cursor.StoreID, text string) (position, error) {
	payload, err := cursor.Decode(cursor.Watch, store, text)
	if err != nil {
		return position{}, err
	}
	if len(payload) < 8 || int64(binary.BigEndian.Uint64(payload)) <= 0 {
		return position{}, fmt.Errorf("%w: this is no cursor", storage.ErrInvalid)
	}
	p := endOf(int64(binary.BigEndian.Uint64(payload)))
	if len(payload) > 8 {
		p.key = string(payload[8:])
	}
	return p, nil
}
