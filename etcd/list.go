package etcd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	mvccpb "go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The sizes of what a listing asks for at a time. A range of etcd is bounded by number only, so the number follows the size of
// what came last. Where that was no guide, because larger resources follow smaller ones, the answer is not taken into memory, and
// fewer are asked for.
const (
	firstChunk = 64
	maxChunk   = 1024
	chunkBytes = 4 << 20
	mostBytes  = 2 * chunkBytes // of one answer
)

// listing walks over the resources that match a filter, at one revision.
type listing struct {
	b          *handle
	filter     key.Filter
	next, end  []byte
	rev        int64 // 0 before the first answer
	consistent storage.ReadConsistency
	chunk      int
	kvs        []*mvccpb.KeyValue // came, not yet looked at
	more       bool
}

func (b *handle) list(f key.Filter, consistency storage.ReadConsistency) *listing {
	from, to := b.layout.span(&f)
	return &listing{b: b, filter: f, next: from, end: to, consistent: consistency, chunk: firstChunk, more: true}
}

// span is the range of etcd keys in which all matches of a filter lie.
func (l *layout) span(f *key.Filter) (from, to []byte) {
	prefix, _ := f.Prefix()
	from = append(append([]byte(nil), l.resources...), prefix...)
	return from, key.PrefixEnd(from)
}

// take returns the next match, with its size, or io.EOF.
func (l *listing) take(ctx context.Context) (*resourcepb.Resource, int, error) {
	for {
		res, size, err := l.first()
		if !errors.Is(err, errUsedUp) {
			return res, size, err
		}
		if err := l.fetch(ctx); err != nil {
			return nil, 0, err
		}
	}
}

// errUsedUp says that the next match is still in the database.
var errUsedUp = errors.New("nothing is at hand")

// first returns the next match at hand.
func (l *listing) first() (*resourcepb.Resource, int, error) {
	for len(l.kvs) > 0 {
		kv := l.kvs[0]
		l.kvs[0] = nil
		l.kvs = l.kvs[1:]
		l.next = append(kv.Key, 0)
		k, err := l.b.layout.parse(kv.Key)
		if err != nil {
			return nil, 0, err
		}
		if !l.filter.Match(&k) {
			continue
		}
		_, res, err := l.b.layout.decode(kv)
		return res, len(kv.Value), err
	}
	if l.more {
		return nil, 0, errUsedUp
	}
	return nil, 0, io.EOF
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
	l.kvs, l.more = resp.Kvs, resp.More
	size := 0
	for _, kv := range resp.Kvs {
		size += len(kv.Value)
	}
	if n := len(resp.Kvs); n > 0 {
		l.chunk = max(1, min(chunkBytes/(size/n+1), 4*l.chunk, maxChunk))
	}
}

func (l *listing) read(ctx context.Context) (*clientv3.GetResponse, error) {
	get := func(ctx context.Context, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
		opts = append(opts, clientv3.WithRange(string(l.end)), clientv3.WithRev(l.rev))
		for {
			resp, err := l.b.ranges.Get(ctx, string(l.next), append(opts, clientv3.WithLimit(int64(l.chunk)))...)
			if !isTooMuch(err) || l.chunk == 1 {
				return resp, err
			}
			l.chunk = max(1, l.chunk/4)
		}
	}
	if l.consistent == storage.StrongConsistency {
		return linearizably(ctx, l.b, get)
	}
	if l.rev == 0 {
		return eventually(ctx, l.b, get)
	}
	// Any member that has the revision will do; one that has not got it yet says so.
	one, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	resp, err := get(one, clientv3.WithSerializable())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) {
		return linearizably(ctx, l.b, get)
	}
	return resp, translate(err)
}

// boundedKV refuses answers of more than mostBytes when their first bytes have come.
type boundedKV struct{ pb.KVClient }

// Range is the client's.
func (kv boundedKV) Range(ctx context.Context, in *pb.RangeRequest, opts ...grpc.CallOption) (*pb.RangeResponse, error) {
	return kv.KVClient.Range(ctx, in, append(opts, grpc.MaxCallRecvMsgSize(mostBytes))...)
}

// isTooMuch reports whether an answer was refused for its size. gRPC has no other mark for it than the text; an answer that is
// refused under another text is an error of the list, never a gap.
func isTooMuch(err error) bool {
	return status.Code(err) == codes.ResourceExhausted && strings.Contains(err.Error(), "received message larger than max")
}

// Scan implements driver.Driver. The list shows one revision.
func (b *handle) Scan(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, rows driver.Rows) (position, error) {
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return position{}, err
	}
	defer done()
	return again(ctx, func() (position, error) {
		rows.Restart()
		l := b.list(*f, consistency)
		for {
			res, _, err := l.take(ctx)
			if errors.Is(err, io.EOF) {
				return endOf(l.rev), nil
			}
			if err == nil {
				err = rows.AddResource(res)
			}
			if err != nil {
				return position{}, err
			}
		}
	})
}

// again repeats what reads one revision in several steps, should that revision be compacted in between.
func again[T any](ctx context.Context, read func() (T, error)) (T, error) {
	for attempt := 0; ; attempt++ {
		answer, err := read()
		if !errors.Is(err, storage.ErrCompacted) {
			return answer, err
		}
		if !pause(ctx, attempt) {
			return answer, unavailable(ctx, err)
		}
	}
}

// Page implements driver.Pager. All pages of a listing show the revision of the first one, for as long as the cluster keeps it. What
// a page goes on from is that revision and a key.
func (b *handle) Page(ctx context.Context, consistency storage.ReadConsistency, f *driver.Filter, from []byte, limit int) (page driver.ListedPage[position], err error) {
	l := b.list(*f, consistency)
	if from != nil {
		if err := l.resume(from); err != nil {
			return page, err
		}
	}
	ctx, done, err := b.begin(ctx)
	if err != nil {
		return page, err
	}
	defer done()
	size := 0
	for {
		l.chunk = min(l.chunk, limit-len(page.Resources)+1) // one more reports whether there is more
		res, n, err := l.take(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return driver.ListedPage[position]{}, err
		}
		page.Resources = append(page.Resources, res)
		if size += n; len(page.Resources) == limit || size >= driver.PageBytes {
			if l.more || len(l.kvs) > 0 {
				page.Next = append(binary.BigEndian.AppendUint64(nil, uint64(l.rev)), l.next[len(b.layout.resources):]...)
			}
			break
		}
	}
	page.At = endOf(l.rev)
	return page, nil
}

func (l *listing) resume(from []byte) error {
	if len(from) < 8 {
		return fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
	}
	next := append(append([]byte(nil), l.b.layout.resources...), from[8:]...)
	l.rev = int64(binary.BigEndian.Uint64(from))
	if l.rev <= 0 || bytes.Compare(next, l.next) < 0 || bytes.Compare(next, l.end) > 0 {
		return fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
	}
	l.next = next
	return nil
}
