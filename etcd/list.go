package etcd

import (
	"bytes"
	"context"
	"crypto/sha256"
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
	"github.com/ashlar-dev/storage/internal/check"
	"github.com/ashlar-dev/storage/internal/cursor"
	"github.com/ashlar-dev/storage/internal/key"
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
	pageLimit  = 500
	pageBytes  = 4 << 20
)

// listing walks over the resources that match a filter, at one revision.
type listing struct {
	b          *Backend
	filter     key.Filter
	next, end  []byte
	rev        int64 // 0 before the first answer
	consistent storage.ReadConsistency
	chunk      int
	kvs        []*mvccpb.KeyValue // came, not yet looked at
	more       bool
}

func (b *Backend) list(f key.Filter, consistency storage.ReadConsistency) *listing {
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

// collect takes everything.
func (l *listing) collect(ctx context.Context) ([]*resourcepb.Resource, error) {
	var list []*resourcepb.Resource
	for {
		res, _, err := l.take(ctx)
		if errors.Is(err, io.EOF) {
			return list, nil
		}
		if err != nil {
			return nil, err
		}
		list = append(list, res)
	}
}

// List implements [storage.Backend]. The list shows one revision.
func (b *Backend) List(ctx context.Context, consistency storage.ReadConsistency, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string) ([]*resourcepb.Resource, error) {
	f, err := check.Filter(typ, tenancy, namePrefix)
	ctx, done, err := b.begin(ctx, check.Consistency(consistency), err)
	if err != nil {
		return nil, err
	}
	defer done()
	list, err := again(ctx, func() ([]*resourcepb.Resource, error) { return b.list(f, consistency).collect(ctx) })
	if err != nil {
		return nil, fmt.Errorf("list: %w", err)
	}
	return list, nil
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

// ListPage implements [storage.Pager]. All pages of a listing show the revision of the first one, for as long as the cluster
// keeps it.
func (b *Backend) ListPage(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, namePrefix string, opts storage.ListOptions) (storage.Page, error) {
	limit, badOptions := check.Page(opts, pageLimit)
	f, badFilter := check.Filter(typ, tenancy, namePrefix)
	l := b.list(f, opts.Consistency)
	var badToken error
	if opts.Continue != "" {
		badToken = l.resume(opts.Continue)
	}
	ctx, done, err := b.begin(ctx, badOptions, badFilter, badToken)
	if err != nil {
		return storage.Page{}, err
	}
	defer done()
	page, err := l.page(ctx, limit)
	if err != nil {
		return storage.Page{}, fmt.Errorf("list: %w", err)
	}
	return page, nil
}

func (l *listing) page(ctx context.Context, limit int) (storage.Page, error) {
	var page storage.Page
	size := 0
	for {
		l.chunk = min(l.chunk, limit-len(page.Resources)+1) // one more tells whether there is more
		res, n, err := l.take(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return storage.Page{}, err
		}
		page.Resources = append(page.Resources, res)
		if size += n; len(page.Resources) == limit || size >= pageBytes {
			if l.more || len(l.kvs) > 0 {
				page.Continue = l.token()
			}
			break
		}
	}
	page.Cursor = encodeCursor(l.b.layout.store, endOf(l.rev))
	return page, nil
}

// token is the revision, the filter's hash, and the key to go on from.
func (l *listing) token() string {
	payload := binary.BigEndian.AppendUint64(nil, uint64(l.rev))
	payload = append(payload, filterHash(l.filter)...)
	return cursor.Encode(cursor.Page, l.b.layout.store, append(payload, l.next[len(l.b.layout.resources):]...))
}

func (l *listing) resume(token string) error {
	payload, err := cursor.Decode(cursor.Page, l.b.layout.store, token)
	if err != nil {
		return err
	}
	if len(payload) < 16 {
		return fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
	}
	if !bytes.Equal(payload[8:16], filterHash(l.filter)) {
		return fmt.Errorf("%w: the continue token belongs to a list with another filter", storage.ErrInvalid)
	}
	next := append(append([]byte(nil), l.b.layout.resources...), payload[16:]...)
	l.rev = int64(binary.BigEndian.Uint64(payload))
	if l.rev <= 0 || bytes.Compare(next, l.next) < 0 || bytes.Compare(next, l.end) > 0 {
		return fmt.Errorf("%w: this is no continue token", storage.ErrInvalid)
	}
	l.next = next
	return nil
}

func filterHash(f key.Filter) []byte {
	sum := sha256.Sum256(f.Bytes())
	return sum[:8]
}
