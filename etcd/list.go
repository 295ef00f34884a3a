package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/feed"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The sizes of what a listing asks for at a time. A range of etcd is bounded by number only, so the number follows the size of
// what came last. Where that was no guide, because larger resources follow smaller ones, the answer is not taken into memory, and
// fewer are asked for.
const (
	firstChunk = 64
	firstPage  = 128 // where the number of wanted resources is known
	maxChunk   = 1024
	probeChunk = 16 // behind a skip
)

// listing walks over the resources of a range that match a filter, at one revision. From a key that does not match it goes on where the
// next one can: what is at hand before that is dropped, and the next chunk begins there.
type listing struct {
	b              *handle
	filter         *key.Filter // nil: all match
	next, end      []byte
	rev            int64 // 0 before the first answer, unless it was given
	pinnedRevision bool  // rev was given, or is a promise: the cluster may not have gone back
	consistent     storage.ReadConsistency
	keysOnly       bool

	kvs            []*mvccpb.KeyValue // came, not yet looked at
	more           bool
	total          int64 // keys in the range, whether they match or not; -1 before the first answer
	remainingCount int64 // how many of those follow the keys at hand
	chunk          int
	keysSinceMatch int64 // keys since the last match
	came           int   // keys in all answers
}

func (b *handle) list(f *key.Filter, consistency storage.ReadConsistency) *listing {
	return b.listWithin(f, nil, nil, consistency)
}

// listWithin is list between two keys' bytes, of which nil is no bound.
func (b *handle) listWithin(f *key.Filter, from, to []byte, consistency storage.ReadConsistency) *listing {
	l := &listing{b: b, filter: f, consistent: consistency, chunk: firstChunk, more: true, total: -1}
	l.next, l.end = b.layout.keyRange(f)
	if first := b.layout.within(from); bytes.Compare(first, l.next) > 0 {
		l.next = first
	}
	if last := b.layout.within(to); to != nil && bytes.Compare(last, l.end) < 0 {
		l.end = last
	}
	l.seek(l.next)
	return l
}

// take returns the next match, or io.EOF.
func (l *listing) take(ctx context.Context) (key.Key, *mvccpb.KeyValue, error) {
	for {
		k, kv, err := l.first()
		if !errors.Is(err, errUsedUp) {
			return k, kv, err
		}
		if err := l.fetch(ctx); err != nil {
			return key.Key{}, nil, err
		}
	}
}

// errUsedUp says that the next match is still in the database.
var errUsedUp = errors.New("nothing is at hand")

// first returns the next match at hand.
func (l *listing) first() (key.Key, *mvccpb.KeyValue, error) {
	for len(l.kvs) > 0 {
		kv := l.kvs[0]
		k, err := l.b.layout.parse(kv.Key)
		if err != nil {
			return key.Key{}, nil, err
		}
		if l.filter != nil && !l.filter.Match(&k) {
			l.seek(kv.Key)
			continue
		}
		l.kvs[0] = nil
		l.kvs = l.kvs[1:]
		l.next = append(kv.Key[:len(kv.Key):len(kv.Key)], 0)
		l.keysSinceMatch = 0
		return k, kv, nil
	}
	if l.more {
		return key.Key{}, nil, errUsedUp
	}
	return key.Key{}, nil, io.EOF
}

// seek goes on at the first key from another one on that can match.
func (l *listing) seek(etcdKey []byte) {
	l.next = etcdKey
	if l.filter != nil {
		from, ok := l.filter.Seek(etcdKey[len(l.b.layout.resources):])
		if !ok {
			from = l.end[len(l.b.layout.resources):]
		}
		l.next = l.b.layout.within(from)
	}
	passed := 0
	for passed < len(l.kvs) && bytes.Compare(l.kvs[passed].Key, l.next) < 0 {
		l.kvs[passed] = nil
		passed++
	}
	l.kvs = l.kvs[passed:]
	l.keysSinceMatch += int64(passed)
	if bytes.Compare(l.next, l.end) >= 0 {
		l.kvs, l.more = nil, l.total < 0 // the first answer tells the revision, whatever is in it
	}
}

// fetch asks for the next chunk.
func (l *listing) fetch(ctx context.Context) error {
	resp, err := l.read(ctx)
	if err == nil {
		l.keep(resp)
	}
	return err
}

func (l *listing) keep(resp *clientv3.GetResponse) {
	if l.rev == 0 {
		l.rev = resp.Header.Revision
	}
	if l.total < 0 {
		l.total = resp.Count
	} else {
		l.keysSinceMatch += l.remainingCount - resp.Count
	}
	l.kvs, l.more = resp.Kvs, resp.More
	l.remainingCount = resp.Count - int64(len(resp.Kvs))
	size := 0
	for _, kv := range resp.Kvs {
		size += len(kv.Value)
	}
	n := len(resp.Kvs)
	l.came += n
	if n == 0 {
		return
	}
	l.chunk = max(1, min(chunkBytes/(size/n+1), 4*l.chunk, maxChunk))
	if l.keysSinceMatch*int64(max(size/n, usualSize)) >= usualSize*l.worthSkipping() {
		l.chunk = min(l.chunk, probeChunk)
	}
}

// expect bounds the next chunk by the number of matches that are still wanted, where of what came so many have matched.
func (l *listing) expect(wanted, matched int) {
	switch {
	case l.came == 0:
		l.chunk = min(firstPage, wanted)
	case matched > 0:
		l.chunk = min(l.chunk, (wanted*l.came+matched-1)/matched)
	}
}

// usualSize is the size of a resource that the number of keys worth skipping is about.
const usualSize = 1 << 10

// worthSkipping returns from how many keys in a row that do not match a probe is cheaper than to read them. A server answers no range
// before it has counted the keys in all of it, and a chunk of a walk and a probe cost that alike: behind many keys, only what is longer
// than the largest chunks pays.
func (l *listing) worthSkipping() int64 { return min(256+l.remainingCount/64, 2*maxChunk) }

func (l *listing) read(ctx context.Context) (*clientv3.GetResponse, error) {
	opts := []clientv3.OpOption{clientv3.WithRange(string(l.end)), clientv3.WithRev(l.rev)}
	if l.keysOnly {
		opts = append(opts, clientv3.WithKeysOnly())
	}
	get := func(ctx context.Context, more ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		more = append(append(more, opts...), clientv3.WithLimit(0))
		for {
			more[len(more)-1] = clientv3.WithLimit(int64(l.chunk))
			resp, err := l.b.ranges.Get(ctx, string(l.next), more...)
			if !isTooMuch(err) || l.chunk == 1 {
				return resp, err
			}
			l.chunk = max(1, l.chunk/4)
		}
	}
	seen := l.b.newestRevision.Load()
	switch {
	case l.consistent == storage.StrongConsistency:
		return l.notGoneBack(seen)(linearizably(ctx, l.b, get))
	case l.total < 0:
		return l.notGoneBack(seen)(eventually(ctx, l.b, get))
	}
	// Any member that has the revision will do; one that has not got it yet says so.
	one, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	resp, err := get(one, clientv3.WithSerializable())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return l.notGoneBack(seen)(linearizably(ctx, l.b, get))
	}
	return resp, translate(err)
}

// notGoneBack makes an answer an error if revisions mean something and the cluster has fewer of them than before.
func (l *listing) notGoneBack(seen int64) func(*clientv3.GetResponse, error) (*clientv3.GetResponse, error) {
	return func(resp *clientv3.GetResponse, err error) (*clientv3.GetResponse, error) {
		if err == nil && l.pinnedRevision && resp.Header.Revision < seen {
			return nil, errWentBack
		}
		return resp, err
	}
}

// isTooMuch reports whether an answer was refused for its size. gRPC has no other mark for it than the text; an answer that is
// refused under another text is an error of the list, never a gap.
func isTooMuch(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "received message larger than max")
}

// List implements driver.Driver. The list shows one revision.
func (b *handle) List(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = retryRead(ctx, func() (struct{}, error) {
		rows.Restart()
		l := b.list(f, consistency)
		for {
			k, kv, err := l.take(ctx)
			if errors.Is(err, io.EOF) {
				return struct{}{}, nil
			}
			var res *resourcepb.Resource
			if err == nil {
				res, err = b.layout.decodeValue(k, kv)
			}
			if err == nil {
				err = rows.AddResource(res)
			}
			if err != nil {
				return struct{}{}, err
			}
		}
	})
	return err
}

// Children implements driver.Driver. The edges of an owner are neighbours, in the order of the children's keys.
func (b *handle) Children(ctx context.Context, owner driver.Key, uid string) ([]*resourcepb.ID, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return retryRead(ctx, func() ([]*resourcepb.ID, error) { return b.references(ctx, ownerHash(owner, uid)) })
}

func (b *handle) references(ctx context.Context, owner [16]byte) ([]*resourcepb.ID, error) {
	from := b.layout.edgesOf(owner)
	next, end := string(from), string(key.PrefixEnd(from))
	var refs []*resourcepb.ID
	for rev, more := int64(0), true; more; {
		get := func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
			opts = append(opts, clientv3.WithRange(end), clientv3.WithLimit(maxChunk), clientv3.WithRev(rev))
			return b.kv.Get(ctx, next, opts...)
		}
		read := eventually
		if rev != 0 {
			read = linearizably
		}
		resp, err := read(ctx, b, get)
		if err != nil {
			return nil, err
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			child, lookUp, err := b.layout.parseEdge(kv)
			if err != nil {
				return nil, err
			}
			if lookUp {
				if err := b.readGroupVersion(ctx, child, rev); err != nil {
					return nil, err
				}
			}
			refs = append(refs, child)
			next = string(kv.Key) + "\x00"
		}
		more = resp.More
	}
	return refs, nil
}

// readGroupVersion reads the group version of a child at a revision.
func (b *handle) readGroupVersion(ctx context.Context, child *resourcepb.ID, rev int64) error {
	k := key.Of(child)
	resp, err := linearizably(ctx, b, func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		return b.kv.Get(ctx, string(b.layout.resource(k)), append(opts, clientv3.WithRev(rev))...)
	})
	if err != nil {
		return err
	}
	kv := first(resp.Kvs)
	if kv == nil {
		return fmt.Errorf("the owner edge of %v points to nothing", k)
	}
	_, res, err := b.layout.decode(kv)
	if err != nil {
		return err
	}
	child.Type.GroupVersion = res.GetId().GetType().GetGroupVersion()
	return nil
}

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
	l        *listing
	lifetime context.Context // ends with Close
	cancel   context.CancelFunc
	chunk    feed.BackgroundCall[*clientv3.GetResponse]
}

func newSnapshot(l *listing) *snapshot {
	s := &snapshot{l: l}
	s.lifetime, s.cancel = context.WithCancel(context.Background())
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
	ctx, cancel := context.WithTimeout(s.lifetime, l.b.opts.Outage)
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
