package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
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

// The numbers of keys in a request of a listing. etcd limits a range by number only, so the number follows the sizes of the last
// response. If larger resources follow smaller ones, the response may exceed maxResponseBytes: it is rejected before it is in memory,
// and the listing requests fewer keys.
const (
	firstChunk = 64
	firstPage  = 128 // if the number of requested resources is known
	maxChunk   = 1024
	probeChunk = 16 // after a skip
)

// listing iterates over the resources of a range that match a filter, at one revision. From a key that does not match it skips to the
// next key that can match: it drops the fetched keys before that, and the next chunk starts there.
type listing struct {
	c              *conn
	filter         *key.Filter // nil: all match
	next, end      []byte
	rev            int64 // 0 before the first response, unless the caller has set it
	pinnedRevision bool  // the result depends on rev, so a cluster that went back is an error
	consistent     storage.ReadConsistency
	keysOnly       bool
	refuseMoved    bool // the first response must come from a store that has not moved

	kvs            []*mvccpb.KeyValue // fetched, not returned yet
	more           bool
	total          int64 // keys in the range, matching or not; -1 before the first response
	remainingCount int64 // keys of the range after the fetched ones
	chunk          int
	keysSinceMatch int64 // keys since the last match
	receivedCount  int   // keys in all responses
}

func newListing(c *conn, f *key.Filter, consistency storage.ReadConsistency) *listing {
	return newListingWithin(c, f, nil, nil, consistency)
}

// newListingWithin is newListing within the bounds of two keys' bytes. nil is no bound.
func newListingWithin(c *conn, f *key.Filter, from, to []byte, consistency storage.ReadConsistency) *listing {
	l := &listing{c: c, filter: f, consistent: consistency, chunk: firstChunk, more: true, total: -1}
	l.next, l.end = c.layout.keyRange(f)
	if first := c.layout.within(from); bytes.Compare(first, l.next) > 0 {
		l.next = first
	}
	if last := c.layout.within(to); to != nil && bytes.Compare(last, l.end) < 0 {
		l.end = last
	}
	l.seek(l.next)
	return l
}

// take returns the next match, or io.EOF.
func (l *listing) take(ctx context.Context) (key.Key, *mvccpb.KeyValue, error) {
	for {
		k, kv, err := l.first()
		if !errors.Is(err, errChunkEnd) {
			return k, kv, err
		}
		if err := l.fetch(ctx); err != nil {
			return key.Key{}, nil, err
		}
	}
}

// errChunkEnd reports that all fetched keys have been returned and the range has more keys.
var errChunkEnd = errors.New("all fetched keys have been returned")

// first returns the next match among the fetched keys, or errChunkEnd, or io.EOF.
func (l *listing) first() (key.Key, *mvccpb.KeyValue, error) {
	for len(l.kvs) > 0 {
		kv := l.kvs[0]
		k, err := l.c.layout.parse(kv.Key)
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
		return key.Key{}, nil, errChunkEnd
	}
	return key.Key{}, nil, io.EOF
}

// seek moves the listing to the first key at or after etcdKey that can match.
func (l *listing) seek(etcdKey []byte) {
	l.next = etcdKey
	if l.filter != nil {
		from, ok := l.filter.Seek(etcdKey[len(l.c.layout.resources):])
		if !ok {
			from = l.end[len(l.c.layout.resources):]
		}
		l.next = l.c.layout.within(from)
	}
	skipped := 0
	for skipped < len(l.kvs) && bytes.Compare(l.kvs[skipped].Key, l.next) < 0 {
		l.kvs[skipped] = nil
		skipped++
	}
	l.kvs = l.kvs[skipped:]
	l.keysSinceMatch += int64(skipped)
	if bytes.Compare(l.next, l.end) >= 0 {
		l.kvs, l.more = nil, l.total < 0 // the first response is needed for its revision
	}
}

// fetch requests the next chunk.
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
	l.receivedCount += n
	if n == 0 {
		return
	}
	l.chunk = max(1, min(chunkBytes/(size/n+1), 4*l.chunk, maxChunk))
	if l.keysSinceMatch*int64(max(size/n, usualSize)) >= usualSize*l.worthSkipping() {
		l.chunk = min(l.chunk, probeChunk)
	}
}

// limitChunk limits the next chunk to the number of keys expected to contain the wanted matches, given the matches so far.
func (l *listing) limitChunk(wanted, matched int) {
	switch {
	case l.receivedCount == 0:
		l.chunk = min(firstPage, wanted)
	case matched > 0:
		l.chunk = min(l.chunk, (wanted*l.receivedCount+matched-1)/matched)
	}
}

// usualSize is the size of a resource that worthSkipping assumes.
const usualSize = 1 << 10

// worthSkipping returns the minimum number of consecutive keys without a match that makes a probe cheaper than reading the keys. A
// server counts all keys of a range before it answers, for a chunk as for a probe. With many keys in the range, a probe pays off
// only if it skips more keys than the largest chunk has.
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
			var resp *clientv3.GetResponse
			var err error
			if l.refuseMoved && l.total < 0 {
				resp, err = l.getUnlessMoved(ctx)
			} else {
				resp, err = l.c.ranges.Get(ctx, string(l.next), more...)
			}
			if !isTooLarge(err) || l.chunk == 1 {
				return resp, err
			}
			l.chunk = max(1, l.chunk/4)
		}
	}
	seen := l.c.newestRevision.Load()
	switch {
	case l.consistent == storage.StrongConsistency:
		return l.rejectOlder(seen)(linearizably(ctx, l.c, get))
	case l.total < 0:
		return l.rejectOlder(seen)(eventually(ctx, l.c, get))
	}
	// Any member can answer once the revision has reached it. One that lags returns an error.
	attemptCtx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	resp, err := get(attemptCtx, clientv3.WithSerializable())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return l.rejectOlder(seen)(linearizably(ctx, l.c, get))
	}
	return resp, translate(err)
}

// getUnlessMoved requests the next chunk linearizably, unless the store has moved.
func (l *listing) getUnlessMoved(ctx context.Context) (*clientv3.GetResponse, error) {
	resp, fence, err := l.c.readWithFence(ctx, maxResponseBytes, &pb.RequestOp{Request: &pb.RequestOp_RequestRange{
		RequestRange: &pb.RangeRequest{Key: l.next, RangeEnd: l.end, Limit: int64(l.chunk), Revision: l.rev, KeysOnly: l.keysOnly},
	}})
	if err == nil {
		err = readError(ctx, fence)
	}
	if err != nil {
		return nil, err
	}
	chunk := resp.Responses[0].GetResponseRange()
	chunk.Header = resp.Header
	return (*clientv3.GetResponse)(chunk), nil
}

// rejectOlder returns a function that replaces a response with errWentBack if the result depends on the revision and the response is
// older than seen: the cluster was restored from a backup.
func (l *listing) rejectOlder(seen int64) func(*clientv3.GetResponse, error) (*clientv3.GetResponse, error) {
	return func(resp *clientv3.GetResponse, err error) (*clientv3.GetResponse, error) {
		if err == nil && l.pinnedRevision && resp.Header.Revision < seen {
			return nil, errWentBack
		}
		return resp, err
	}
}

// isTooLarge reports whether the client rejected a response for its size. gRPC reports the reason only in the text. If the text changes, the list
// fails, but never has a gap.
func isTooLarge(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "received message larger than max")
}

// lister implements the lists of driver.Driver and driver.Snapshotter.
type lister struct{ *conn }

// List implements driver.Driver. The list shows one revision.
func (r lister) List(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) error {
	ctx, done, err := r.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	_, err = retryRead(ctx, func() (struct{}, error) {
		rows.Restart()
		l := newListing(r.conn, f, consistency)
		l.refuseMoved = consistency == storage.StrongConsistency
		for {
			k, kv, err := l.take(ctx)
			if errors.Is(err, io.EOF) {
				return struct{}{}, nil
			}
			var res *resourcepb.Resource
			if err == nil {
				res, err = r.layout.decodeValue(k, kv)
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

// Children implements driver.Driver. The entries of an owner are adjacent, in the order of the children's keys.
func (r lister) Children(ctx context.Context, owner driver.Key, uid string) ([]*resourcepb.ID, error) {
	ctx, done, err := r.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return retryRead(ctx, func() ([]*resourcepb.ID, error) { return r.references(ctx, ownerHash(owner, uid)) })
}

func (r lister) references(ctx context.Context, owner [16]byte) ([]*resourcepb.ID, error) {
	from := r.layout.entriesOf(owner)
	next, end := string(from), string(key.PrefixEnd(from))
	var refs []*resourcepb.ID
	for rev, more := int64(0), true; more; {
		get := func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
			opts = append(opts, clientv3.WithRange(end), clientv3.WithLimit(maxChunk), clientv3.WithRev(rev))
			return r.kv.Get(ctx, next, opts...)
		}
		read := eventually
		if rev != 0 {
			read = linearizably
		}
		resp, err := read(ctx, r.conn, get)
		if err != nil {
			return nil, err
		}
		if rev == 0 {
			rev = resp.Header.Revision
		}
		for _, kv := range resp.Kvs {
			child, readVersion, err := r.layout.parseEntry(kv)
			if err != nil {
				return nil, err
			}
			if readVersion {
				if err := r.readGroupVersion(ctx, child, rev); err != nil {
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
func (r lister) readGroupVersion(ctx context.Context, child *resourcepb.ID, rev int64) error {
	k := key.Of(child)
	resp, err := linearizably(ctx, r.conn, func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		return r.kv.Get(ctx, string(r.layout.resource(k)), append(opts, clientv3.WithRev(rev))...)
	})
	if err != nil {
		return err
	}
	kv := first(resp.Kvs)
	if kv == nil {
		return fmt.Errorf("%v has an owner entry, but is not stored", k)
	}
	_, res, err := r.layout.decode(kv)
	if err != nil {
		return err
	}
	child.Type.GroupVersion = res.GetId().GetType().GetGroupVersion()
	return nil
}

// Snapshot implements driver.Snapshotter. The snapshot is read at one revision, page by page, while the watch is consumed.
func (r lister) Snapshot(ctx context.Context, _ time.Time, f *driver.Filter) (driver.Snapshot, position, error) {
	ctx, done, err := r.begin(ctx)
	if err != nil {
		return nil, position{}, err
	}
	defer done()
	l := newListing(r.conn, f, storage.StrongConsistency)
	l.refuseMoved = true
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

// snapshot is the listing that starts a watch.
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
			return l.c.layout.decodeValue(k, kv)
		}
		if !errors.Is(err, errChunkEnd) {
			return nil, err
		}
		resp, err := s.chunk.Do(ctx, func() (*clientv3.GetResponse, error) { return s.read(l) })
		if err != nil {
			return nil, err
		}
		l.keep(resp)
	}
}

// read requests the next chunk. It retries for Options.Outage, so the watch survives a shorter outage.
func (s *snapshot) read(l *listing) (*clientv3.GetResponse, error) {
	ctx, cancel := context.WithTimeout(s.lifetime, l.c.opts.Outage)
	defer cancel()
	ctx, done, err := l.c.begin(ctx)
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
	s.l = nil // a chunk still being read keeps its own reference
}
