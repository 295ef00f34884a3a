package etcdserver

import (
	"bytes"
	"context"
	"slices"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

// view is the store as seen by an operation of a transaction: at the revision of the transaction, but without its later changes.
type view struct {
	revision int64
	// before holds the stored records, nil for none, of the keys that later operations of the transaction change.
	before map[string]*history.Record
	// newlyDeleted are keys that the transaction has deleted after the revision.
	newlyDeleted map[string]bool
}

// read answers a range request.
func (v *view) read(ctx context.Context, s *Server, r *pb.RangeRequest) (*pb.RangeResponse, error) {
	revision := v.revision
	if r.Revision > 0 {
		revision = r.Revision
	}
	if r.Revision > v.revision {
		return nil, storage.ErrFutureRevision
	}
	later := keysInRange(v.before, r.Key, r.RangeEnd)
	if r.Revision > 0 || len(later) == 0 && len(keysInRange(v.newlyDeleted, r.Key, r.RangeEnd)) == 0 {
		answer, _, err := s.rangeAt(ctx, r, revision)
		if answer != nil {
			answer.Header = innerHeader(v.revision)
		}
		return answer, err
	}
	all, _, err := s.rangeAt(ctx, &pb.RangeRequest{Key: r.Key, RangeEnd: r.RangeEnd}, revision)
	if err != nil {
		return nil, err
	}
	all.Header = innerHeader(v.revision)
	all.Kvs = slices.DeleteFunc(all.Kvs, func(kv *mvccpb.KeyValue) bool {
		_, changed := v.before[string(kv.Key)]
		return changed || v.newlyDeleted[string(kv.Key)]
	})
	for _, key := range later {
		if stored := v.before[key]; stored != nil {
			all.Kvs = append(all.Kvs, pair(stored))
		}
	}
	slices.SortFunc(all.Kvs, func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) })
	if all.Count = int64(len(all.Kvs)); r.CountOnly {
		all.Kvs = nil
	}
	arrange(r, all)
	return all, nil
}

// keysInRange returns the keys of a map that are in a range.
func keysInRange[V any](some map[string]V, key, end []byte) (keys []string) {
	for k := range some {
		if within([]byte(k), key, end) {
			keys = append(keys, k)
		}
	}
	return keys
}

// within reports whether a key is in the range of a request.
func within(k, key, end []byte) bool {
	if len(end) == 0 {
		return bytes.Equal(k, key)
	}
	return bytes.Compare(k, key) >= 0 && (isAll(end) || bytes.Compare(k, end) < 0)
}

// put answers a put request, and makes its change visible.
func (v *view) put(r *pb.PutRequest) *pb.ResponseOp {
	answer := putResponse(r, v.before[string(r.Key)], v.revision)
	answer.Header = innerHeader(v.revision)
	delete(v.before, string(r.Key))
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponsePut{ResponsePut: answer}}
}

// deleteResponse answers a delete request, and makes its change visible.
func (v *view) deleteResponse(r *pb.DeleteRangeRequest, ids ...*resourcepb.ID) *pb.ResponseOp {
	answer := &pb.DeleteRangeResponse{Header: innerHeader(v.revision)}
	for _, id := range ids {
		key := string(keyOf(id))
		stored := v.before[key]
		if delete(v.before, key); stored == nil {
			continue
		}
		answer.Deleted++
		if r.PrevKv {
			answer.PrevKvs = append(answer.PrevKvs, pair(stored))
		}
	}
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseDeleteRange{ResponseDeleteRange: answer}}
}

func responseOf(r *pb.RangeResponse) *pb.ResponseOp {
	return &pb.ResponseOp{Response: &pb.ResponseOp_ResponseRange{ResponseRange: r}}
}

// innerHeader returns the header of a response inside the response to a transaction.
func innerHeader(revision int64) *pb.ResponseHeader { return &pb.ResponseHeader{Revision: revision} }
