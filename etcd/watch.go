package etcd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Snapshot implements driver.Snapshotter. It is read page by page, at one revision, as the watch is consumed.
func (b *handle) Snapshot(ctx context.Context, _ time.Time, f *driver.Filter) (driver.Snapshot, position, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, position{}, err
	}
	defer done()
	l := b.list(f, storage.StrongConsistency)
	if err := l.fetch(ctx); err != nil {
		return nil, position{}, snapshotError(ctx, err)
	}
	return newSnapshot(l), endOf(l.rev), nil
}

func snapshotError(ctx context.Context, err error) error {
	switch {
	case errors.Is(err, storage.ErrClosed) || errors.Is(context.Cause(ctx), storage.ErrClosed):
		return storage.ErrClosed
	case ctx.Err() != nil:
		return unavailable(ctx, err)
	}
	return err
}

// snapshot is a listing as the beginning of a watch.
type snapshot struct {
	l      *listing
	life   context.Context // ends with Close
	cancel context.CancelFunc
	chunk  feed.BackgroundCall[*clientv3.GetResponse]
}

func newSnapshot(l *listing) *snapshot {
	s := &snapshot{l: l}
	s.life, s.cancel = context.WithCancel(context.Background())
	return s
}

// Next implements driver.Snapshot.
func (s *snapshot) Next(ctx context.Context) (*resourcepb.Resource, error) {
	l := s.l
	for {
		k, kv, err := l.first()
		if err == nil {
			return l.b.layout.decodeValue(k, kv)
		}
		if !errors.Is(err, errUsedUp) {
			return nil, err
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
		return nil, snapshotError(ctx, err)
	}
	return resp, nil
}

// Close implements driver.Snapshot.
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

// Encode implements driver.Source.
func (*source) Encode(p position) []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(p.rev))
	if p.key != endKey {
		b = append(b, p.key...)
	}
	return b
}

// Decode implements driver.Source.
func (*source) Decode(b []byte) (position, error) {
	if len(b) < 8 || int64(binary.BigEndian.Uint64(b)) <= 0 {
		return position{}, fmt.Errorf("%w: this is no cursor", storage.ErrInvalid)
	}
	p := endOf(int64(binary.BigEndian.Uint64(b)))
	if len(b) > 8 {
		p.key = string(b[8:])
	}
	return p, nil
}
