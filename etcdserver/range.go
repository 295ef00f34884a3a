package etcdserver

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"math"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Range implements etcd's KV service.
func (s *Server) Range(ctx context.Context, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	if err := checkRange(r); err != nil {
		return nil, err
	}
	answer, read, err := s.rangeAt(ctx, r, r.Revision)
	if err == nil && r.Revision > 0 { // the header has the newest revision, not the one read
		_, read, err = s.history.Revisions(ctx)
	}
	if err != nil {
		return nil, toStatus(ctx, err)
	}
	answer.Header = header(read)
	return answer, nil
}

// RangeStream implements etcd's KV service. It reads everything before it sends the first chunk. The last chunk contains the fields for the
// whole response.
func (s *Server) RangeStream(r *pb.RangeRequest, to grpc.ServerStreamingServer[pb.RangeStreamResponse]) error {
	answer, err := s.Range(to.Context(), r)
	if err != nil {
		return err
	}
	for rest := answer.Kvs; ; {
		n, size := 0, 0
		for n < len(rest) && size < chunkSize {
			size += len(rest[n].Key) + len(rest[n].Value)
			n++
		}
		chunk := &pb.RangeResponse{Kvs: rest[:n:n]}
		if rest = rest[n:]; len(rest) == 0 {
			answer.Kvs = chunk.Kvs
			return to.Send(&pb.RangeStreamResponse{RangeResponse: answer})
		}
		if err := to.Send(&pb.RangeStreamResponse{RangeResponse: chunk}); err != nil {
			return err
		}
	}
}

// chunkSize keeps a chunk below the default receive limit of clients, 4 MiB, whatever the size of its last value.
const chunkSize = 2 << 20

// checkRange rejects requests that etcd rejects.
func checkRange(r *pb.RangeRequest) error {
	if len(r.Key) == 0 {
		return rpctypes.ErrGRPCEmptyKey
	}
	if pb.RangeRequest_SortOrder_name[int32(r.SortOrder)] == "" || pb.RangeRequest_SortTarget_name[int32(r.SortTarget)] == "" {
		return rpctypes.ErrGRPCInvalidSortOption
	}
	return nil
}

// rangeAt answers a request at a revision, 0 for the newest, and returns the revision that was read.
func (s *Server) rangeAt(ctx context.Context, r *pb.RangeRequest, revision int64) (*pb.RangeResponse, int64, error) {
	span, ok := requestRange(r.Key, r.RangeEnd)
	if !ok {
		if revision > 0 {
			return &pb.RangeResponse{}, revision, s.checkReadable(ctx, revision)
		}
		_, newest, err := s.history.Revisions(ctx)
		return &pb.RangeResponse{}, newest, err
	}
	opts := history.ScanOptions{Revision: max(revision, 0), Limit: clampLimit(r.Limit), Bytes: math.MaxInt}
	opts.KeysOnly = r.KeysOnly && r.SortTarget != pb.RangeRequest_VALUE
	switch {
	case needsWholeRange(r):
		opts.Limit = 0
	case opts.Limit > 0 && r.SortTarget != pb.RangeRequest_KEY:
		opts.Limit++ // before sorting, etcd reads one more to detect whether more follow
	}
	if r.CountOnly {
		opts.Limit, opts.KeysOnly, opts.Count = 1, true, true
	}
	opts.Count = opts.Count || opts.Limit > 0 && len(r.RangeEnd) > 0
	scan, err := s.scan(ctx, span, opts)
	if err != nil {
		return nil, 0, err
	}
	if r.CountOnly {
		return &pb.RangeResponse{Count: scan.Count}, scan.Revision, nil
	}
	answer := &pb.RangeResponse{More: scan.More, Count: int64(len(scan.Records))}
	if opts.Count {
		answer.Count = scan.Count
	}
	answer.Kvs = make([]*mvccpb.KeyValue, len(scan.Records))
	for i := range scan.Records {
		answer.Kvs[i] = pair(&scan.Records[i])
	}
	arrange(r, answer)
	return answer, scan.Revision, nil
}

// checkReadable returns an error unless the store can be read at a revision.
func (s *Server) checkReadable(ctx context.Context, revision int64) error {
	oldest, newest, err := s.history.Revisions(ctx)
	switch {
	case err != nil:
		return err
	case revision < oldest:
		return storage.ErrCompacted
	case revision > newest:
		return storage.ErrFutureRevision
	}
	return nil
}

// clampLimit returns a limit as an int on every architecture. 0 means no limit.
func clampLimit(limit int64) int { return int(min(max(limit, 0), 1<<30)) }

// scan reads a range at one revision, up to the limit, in as many steps as necessary.
func (s *Server) scan(ctx context.Context, span history.Range, opts history.ScanOptions) (history.ScanResult, error) {
	for {
		scan, err := s.scanOnce(ctx, span, opts)
		if errors.Is(err, storage.ErrCompacted) && opts.Revision == 0 && ctx.Err() == nil {
			continue // the newest revision at the beginning was compacted meanwhile
		}
		return scan, err
	}
}

func (s *Server) scanOnce(ctx context.Context, span history.Range, opts history.ScanOptions) (history.ScanResult, error) {
	all, err := s.history.Scan(ctx, span, opts)
	for err == nil && all.More && (opts.Limit == 0 || len(all.Records) < opts.Limit) {
		next := history.ScanOptions{Revision: all.Revision, KeysOnly: opts.KeysOnly, Bytes: opts.Bytes}
		if opts.Limit > 0 {
			next.Limit = opts.Limit - len(all.Records)
		}
		var page history.ScanResult
		if page, err = s.history.Scan(ctx, all.Rest, next); err == nil {
			all.Records = append(all.Records, page.Records...)
			all.More, all.Rest = page.More, page.Rest
		}
	}
	return all, err
}

// needsWholeRange reports whether a request must read its whole range before a limit applies.
func needsWholeRange(r *pb.RangeRequest) bool {
	return r.SortOrder != pb.RangeRequest_NONE || filters(r)
}

func filters(r *pb.RangeRequest) bool {
	return r.MinModRevision != 0 || r.MaxModRevision != 0 || r.MinCreateRevision != 0 || r.MaxCreateRevision != 0
}

// arrange filters, sorts and limits the keys of a response as requested. The count still covers the range.
func arrange(r *pb.RangeRequest, answer *pb.RangeResponse) {
	if filters(r) {
		answer.Kvs = slices.DeleteFunc(answer.Kvs, func(kv *mvccpb.KeyValue) bool {
			return outOfBounds(kv.ModRevision, r.MinModRevision, r.MaxModRevision) ||
				outOfBounds(kv.CreateRevision, r.MinCreateRevision, r.MaxCreateRevision)
		})
	}
	// A target other than the key sorts even without an order.
	if r.SortTarget != pb.RangeRequest_KEY || r.SortOrder == pb.RangeRequest_DESCEND {
		compare := comparator(r.SortTarget)
		slices.SortStableFunc(answer.Kvs, func(a, b *mvccpb.KeyValue) int {
			if r.SortOrder == pb.RangeRequest_DESCEND {
				return compare(b, a)
			}
			return compare(a, b)
		})
	}
	if limit := clampLimit(r.Limit); limit > 0 && len(answer.Kvs) > limit {
		answer.Kvs, answer.More = answer.Kvs[:limit], true
	}
	if r.KeysOnly {
		for _, kv := range answer.Kvs {
			kv.Value = nil
		}
	}
}

// outOfBounds reports whether a revision is outside bounds. A bound of 0 means none.
func outOfBounds(revision, lowest, highest int64) bool {
	return lowest != 0 && revision < lowest || highest != 0 && revision > highest
}

func comparator(target pb.RangeRequest_SortTarget) func(a, b *mvccpb.KeyValue) int {
	switch target {
	case pb.RangeRequest_VERSION:
		return func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.Version, b.Version) }
	case pb.RangeRequest_CREATE:
		return func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.CreateRevision, b.CreateRevision) }
	case pb.RangeRequest_MOD:
		return func(a, b *mvccpb.KeyValue) int { return cmp.Compare(a.ModRevision, b.ModRevision) }
	case pb.RangeRequest_VALUE:
		return func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Value, b.Value) }
	}
	return func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) }
}

// get reads one key, linearizably. It returns nil if nothing is stored.
func (s *Server) get(ctx context.Context, id *resourcepb.ID) (*history.Record, int64, error) {
	span, _ := requestRange(keyOf(id), nil)
	scan, err := s.history.Scan(ctx, span, history.ScanOptions{Limit: 1})
	if err != nil || len(scan.Records) == 0 {
		return nil, scan.Revision, err
	}
	return &scan.Records[0], scan.Revision, nil
}

// checkRevisions rejects operations that read at an unreadable revision.
func (s *Server) checkRevisions(ctx context.Context, branch []*pb.RequestOp) error {
	for _, op := range branch {
		if r := op.GetRequestRange(); r.GetRevision() > 0 {
			if err := s.checkReadable(ctx, r.Revision); err != nil {
				return toStatus(ctx, err)
			}
		}
	}
	return nil
}
