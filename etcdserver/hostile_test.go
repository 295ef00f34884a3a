package etcdserver_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/status"
)

// said formats the response of a server, without the differences between two servers.
func said(answer fmt.Stringer, err error) string {
	if err != nil {
		s := status.Convert(err)
		return fmt.Sprintf("%s: %s", s.Code(), s.Message())
	}
	switch r := answer.(type) {
	case *pb.RangeResponse:
		return fmt.Sprintf("count %d more %v keys %s", r.Count, r.More, keys(r.Kvs))
	case *pb.PutResponse:
		return fmt.Sprintf("put, before %s", keys([]*mvccpb.KeyValue{r.PrevKv}))
	case *pb.DeleteRangeResponse:
		return fmt.Sprintf("deleted %d, before %s", r.Deleted, keys(r.PrevKvs))
	case *pb.TxnResponse:
		return fmt.Sprintf("succeeded %v, %d answers", r.Succeeded, len(r.Responses))
	case *pb.LeaseGrantResponse:
		return fmt.Sprintf("granted %v for %d, error %q", r.ID != 0, r.TTL, r.Error)
	case *pb.LeaseTimeToLiveResponse:
		return fmt.Sprintf("granted for %d, left %v", r.GrantedTTL, r.TTL > 0)
	case *pb.WatchResponse:
		return fmt.Sprintf("watch %d created %v canceled %v fragment %v compacted %v reason %q events %d",
			r.WatchId, r.Created, r.Canceled, r.Fragment, r.CompactRevision != 0, r.CancelReason, len(r.Events))
	}
	return fmt.Sprintf("%T", answer)
}

func keys(kvs []*mvccpb.KeyValue) string {
	text := make([]string, len(kvs))
	for i, kv := range kvs {
		text[i] = fmt.Sprintf("%.10q=%.10q", kv.GetKey(), kv.GetValue())
	}
	return fmt.Sprint(text)
}

func putOp(key string) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte(key)}}}
}

func deleteOp(key, end string) *pb.RequestOp {
	r := &pb.DeleteRangeRequest{Key: []byte(key), RangeEnd: []byte(end)}
	return &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: r}}
}

func rangeOp(r *pb.RangeRequest) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestRange{RequestRange: r}}
}

func txnOp(success ...*pb.RequestOp) *pb.RequestOp {
	return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Success: success}}}
}

func times(n int, op func(i int) *pb.RequestOp) (ops []*pb.RequestOp) {
	for i := range n {
		ops = append(ops, op(i))
	}
	return ops
}

// hostile sends invalid requests and records the responses.
func hostile(t *testing.T, c *clientv3.Client) string {
	t.Helper()
	kv, leases := pb.NewKVClient(c.ActiveConnection()), pb.NewLeaseClient(c.ActiveConnection())
	text := &strings.Builder{}
	note := func(what string, answer fmt.Stringer, err error) {
		fmt.Fprintf(text, "%s: %s\n", what, said(answer, err))
	}
	for _, key := range []string{"a", "b", "c"} {
		put(t, c, key, "value of "+key)
	}
	zero, all, long := []byte{0}, []byte{0}, bytes.Repeat([]byte("k"), 1<<20)
	for i, r := range []*pb.RangeRequest{
		{}, {RangeEnd: all}, {Key: zero, RangeEnd: all}, {Key: []byte("b"), RangeEnd: all}, {Key: []byte("b"), RangeEnd: []byte("b")},
		{Key: []byte("b"), RangeEnd: []byte("a")}, {Key: []byte("a\x00"), RangeEnd: []byte("c\x00")}, {Key: zero},
		{Key: zero, RangeEnd: all, Limit: -1}, {Key: zero, RangeEnd: all, Limit: math.MaxInt64}, {Key: zero, RangeEnd: all, Limit: math.MinInt64},
		{Key: []byte("a"), Revision: -1}, {Key: []byte("a"), Revision: math.MinInt64}, {Key: []byte("a"), Revision: math.MaxInt64},
		{Key: zero, RangeEnd: all, SortOrder: 9}, {Key: zero, RangeEnd: all, SortTarget: 9}, {Key: zero, RangeEnd: all, SortOrder: -1},
		{Key: zero, RangeEnd: all, SortTarget: pb.RangeRequest_VALUE, KeysOnly: true, SortOrder: pb.RangeRequest_DESCEND},
		{Key: zero, RangeEnd: all, MinModRevision: -5}, {Key: zero, RangeEnd: all, MaxModRevision: -5},
		{Key: zero, RangeEnd: all, MinCreateRevision: math.MaxInt64, CountOnly: true},
		{Key: zero, RangeEnd: all, MaxCreateRevision: 1, Limit: 1},
		{Key: zero, RangeEnd: all, KeysOnly: true, CountOnly: true, Limit: 2}, {Key: long}, {Key: long[:100], RangeEnd: long},
		{Key: []byte("\xff\xfe"), RangeEnd: all}, {Key: []byte("a"), RangeEnd: []byte("\xff\xff\xff")}, {Key: []byte("\xed\xa0\x80")},
	} {
		answer, err := kv.Range(ctx(t), r)
		note(fmt.Sprint("range ", i), answer, err)
	}
	for i, r := range []*pb.PutRequest{
		{}, {Key: []byte("p"), Lease: -1}, {Key: []byte("p"), Lease: math.MinInt64}, {Key: []byte("p"), IgnoreValue: true, Value: []byte("x")},
		{Key: []byte("p"), IgnoreLease: true, Lease: 1}, {Key: []byte("p"), IgnoreLease: true},
		{Key: []byte("p"), IgnoreValue: true, IgnoreLease: true},
		{Key: []byte("a"), IgnoreValue: true, IgnoreLease: true, PrevKv: true}, {Key: []byte("large"), Value: make([]byte, 13<<17)},
	} {
		answer, err := kv.Put(ctx(t), r)
		note(fmt.Sprint("put ", i), answer, err)
	}
	for i, r := range []*pb.DeleteRangeRequest{
		{}, {RangeEnd: all}, {Key: []byte("b"), RangeEnd: []byte("b")}, {Key: []byte("b"), RangeEnd: []byte("a")}, {Key: zero}, {Key: long},
		{Key: []byte("c\x00"), RangeEnd: all, PrevKv: true}, {Key: []byte("b\xff"), RangeEnd: []byte("c\x00"), PrevKv: true},
	} {
		answer, err := kv.DeleteRange(ctx(t), r)
		note(fmt.Sprint("delete ", i), answer, err)
	}
	for i, r := range hostileTxns() {
		answer, err := kv.Txn(ctx(t), r)
		note(fmt.Sprint("txn ", i), answer, err)
	}
	for _, revision := range []int64{-1, math.MinInt64, 0, math.MaxInt64} {
		answer, err := kv.Compact(ctx(t), &pb.CompactionRequest{Revision: revision})
		note(fmt.Sprint("compact ", revision), answer, err)
	}
	for _, r := range []*pb.LeaseGrantRequest{
		{}, {TTL: -1}, {TTL: math.MinInt64}, {TTL: math.MaxInt64},
		{TTL: 9_000_000_000, ID: 5}, {TTL: 60, ID: 5}, {TTL: 60, ID: -7}, {TTL: 60, ID: math.MaxInt64},
	} {
		answer, err := leases.LeaseGrant(ctx(t), r)
		note(fmt.Sprintf("grant %d for %d", r.ID, r.TTL), answer, err)
	}
	for _, id := range []int64{0, -7, 5, math.MinInt64, math.MaxInt64} {
		left, err := leases.LeaseTimeToLive(ctx(t), &pb.LeaseTimeToLiveRequest{ID: id, Keys: true})
		note(fmt.Sprint("time to live ", id), left, err)
		answer, err := leases.LeaseRevoke(ctx(t), &pb.LeaseRevokeRequest{ID: id})
		note(fmt.Sprint("revoke ", id), answer, err)
	}
	hostileWatches(t, c, note)
	return text.String()
}

func hostileTxns() []*pb.TxnRequest {
	deep := putOp("deep")
	for range 100 {
		deep = txnOp(deep)
	}
	a := []byte("a")
	compare := func(c *pb.Compare) *pb.TxnRequest {
		return &pb.TxnRequest{Compare: []*pb.Compare{c}, Success: []*pb.RequestOp{rangeOp(&pb.RangeRequest{Key: a})}}
	}
	distinct := func(i int) *pb.RequestOp { return putOp(fmt.Sprint("many/", i)) }
	both := &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{
		Success: []*pb.RequestOp{putOp("x")}, Failure: []*pb.RequestOp{putOp("x")},
	}}}
	return []*pb.TxnRequest{
		{}, {Success: times(128, distinct)}, {Success: times(129, distinct)}, {Failure: times(129, distinct)},
		{Compare: make([]*pb.Compare, 129)}, {Success: []*pb.RequestOp{deep}},
		{Success: []*pb.RequestOp{txnOp(times(127, distinct)...)}}, {Success: []*pb.RequestOp{txnOp(times(128, distinct)...)}},
		{Success: []*pb.RequestOp{{}}}, {Failure: []*pb.RequestOp{{}}}, {Success: []*pb.RequestOp{putOp("")}},
		{Success: []*pb.RequestOp{deleteOp("", "")}},
		{Success: []*pb.RequestOp{rangeOp(&pb.RangeRequest{})}}, {Success: []*pb.RequestOp{putOp("x"), txnOp(putOp("x"))}},
		{Success: []*pb.RequestOp{txnOp(putOp("x")), txnOp(putOp("x"))}}, {Success: []*pb.RequestOp{both}},
		{Success: []*pb.RequestOp{both, putOp("x")}},
		{Success: []*pb.RequestOp{deleteOp("x", "y"), txnOp(putOp("x1"))}}, {Success: []*pb.RequestOp{txnOp(deleteOp("x", "y")), putOp("x1")}},
		{Success: []*pb.RequestOp{deleteOp("x", "y"), deleteOp("x", "z"), deleteOp("x", "")}},
		{Success: []*pb.RequestOp{deleteOp("y", "x"), putOp("x1")}},
		{Success: []*pb.RequestOp{putOp("x2")}, Failure: []*pb.RequestOp{putOp("x2"), putOp("x2")}},
		{Success: []*pb.RequestOp{putOp("x3"), rangeOp(&pb.RangeRequest{Key: a, Revision: math.MaxInt64})}},
		{Success: []*pb.RequestOp{putOp("x3"), rangeOp(&pb.RangeRequest{Key: a, Revision: -1})}},
		{Success: []*pb.RequestOp{putOp("x4"), rangeOp(&pb.RangeRequest{Key: a, SortOrder: 9})}},
		{Success: []*pb.RequestOp{txnOp(putOp("x5"), rangeOp(&pb.RangeRequest{Key: a, Revision: math.MaxInt64}))}},
		compare(&pb.Compare{}), compare(&pb.Compare{Key: a}), compare(&pb.Compare{Key: a, Target: 9}), compare(&pb.Compare{Key: a, Result: 9}),
		compare(&pb.Compare{Key: a, Target: pb.Compare_VALUE}),
		compare(&pb.Compare{Key: []byte("none"), Target: pb.Compare_VALUE, Result: pb.Compare_NOT_EQUAL}),
		compare(&pb.Compare{Key: a, Target: pb.Compare_MOD, TargetUnion: &pb.Compare_Version{Version: 1}}),
		compare(&pb.Compare{Key: a, Target: pb.Compare_MOD, Result: pb.Compare_GREATER,
			TargetUnion: &pb.Compare_ModRevision{ModRevision: math.MinInt64}}),
		compare(&pb.Compare{Key: []byte("none"), RangeEnd: []byte("nonf"), Target: pb.Compare_VERSION,
			TargetUnion: &pb.Compare_Version{Version: 7}}),
		compare(&pb.Compare{Key: []byte("none"), RangeEnd: []byte("nonf"), Target: pb.Compare_VALUE}),
		compare(&pb.Compare{Key: []byte("b"), RangeEnd: []byte("a"), Target: pb.Compare_VERSION, Result: pb.Compare_GREATER}),
		compare(&pb.Compare{Key: []byte("\xff"), Target: pb.Compare_VERSION}),
	}
}

func hostileWatches(t *testing.T, c *clientv3.Client, note func(what string, answer fmt.Stringer, err error)) {
	t.Helper()
	for i, r := range []*pb.WatchCreateRequest{
		{}, {Key: []byte{0}, RangeEnd: []byte{0}}, {Key: []byte("a"), StartRevision: -1}, {Key: []byte("a"), StartRevision: math.MaxInt64},
		{Key: []byte("a"), WatchId: -5}, {Key: []byte("a"), WatchId: math.MaxInt64}, {Key: []byte("b"), RangeEnd: []byte("a")},
		{Key: []byte("b"), RangeEnd: []byte("b")}, {Key: []byte("a"), Filters: []pb.WatchCreateRequest_FilterType{9}}, {RangeEnd: []byte("b")},
		{Key: bytes.Repeat([]byte("k"), 1<<20)}, {Key: []byte("\xff")},
	} {
		s := stream(t, c)
		cancel := &pb.WatchRequest_CancelRequest{CancelRequest: &pb.WatchCancelRequest{WatchId: 77}}
		for _, w := range []*pb.WatchRequest{{}, {RequestUnion: cancel}, {RequestUnion: &pb.WatchRequest_CreateRequest{}}} {
			if err := s.Send(w); err != nil {
				t.Fatal(err)
			}
		}
		create(t, s, r)
		first, err := s.Recv()
		note(fmt.Sprint("watch of nothing ", i), first, err)
		answer, err := s.Recv()
		note(fmt.Sprint("watch ", i), answer, err)
		if err := s.CloseSend(); err != nil {
			t.Error(err)
		}
	}
}

// Invalid requests are answered as by etcd, whose responses are in testdata.
func TestHostileRequestsAreAnsweredAsByEtcd(t *testing.T) {
	aloneOnEngines(t, func(t *testing.T, c *clientv3.Client) {
		got := hostile(t, c)
		if strings.HasSuffix(t.Name(), "/etcd") { // its transactions allow fewer operations
			got = strings.NewReplacer(
				"txn 1: InvalidArgument: etcdserver: too many operations in txn request", "txn 1: succeeded true, 128 answers",
				"txn 6: InvalidArgument: etcdserver: too many operations in txn request", "txn 6: succeeded true, 1 answers",
			).Replace(got)
		}
		sameAs(t, "testdata/hostile.txt", got)
	})
}

// sameAs compares responses with etcd's responses, line by line.
func sameAs(t *testing.T, file, got string) {
	t.Helper()
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range min(len(theirs), len(ours)) {
		if theirs[i] != ours[i] {
			t.Errorf("line %d:\n  etcd: %s\n  here: %s", i+1, theirs[i], ours[i])
		}
	}
	if len(theirs) != len(ours) {
		t.Errorf("%d lines, etcd has %d", len(ours), len(theirs))
	}
}

// The operations of nested transactions are limited as well, because each may conflict with each other one.
func TestTransactionsOfManyOperations(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		kv := pb.NewKVClient(c.ActiveConnection())
		n := 0
		leaf := func(int) *pb.RequestOp {
			if n++; n%2 == 0 {
				return deleteOp(fmt.Sprint(n), "")
			}
			return putOp(fmt.Sprint(n))
		}
		inner := func(int) *pb.RequestOp { return txnOp(times(20, leaf)...) }
		many := &pb.TxnRequest{Failure: times(50, func(int) *pb.RequestOp { return txnOp(times(30, inner)...) })}
		if r, err := kv.Txn(ctx(t), many); !errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyOps) {
			t.Errorf("%d operations: %v, %v", n, r, err)
		}
		compares := make([]*pb.Compare, 100)
		for i := range compares {
			compares[i] = &pb.Compare{Key: fmt.Append(nil, i), Target: pb.Compare_VERSION, Result: pb.Compare_LESS}
		}
		guarded := func(int) *pb.RequestOp {
			return &pb.RequestOp{Request: &pb.RequestOp_RequestTxn{RequestTxn: &pb.TxnRequest{Compare: compares}}}
		}
		if r, err := kv.Txn(ctx(t), &pb.TxnRequest{Success: times(100, guarded)}); !errors.Is(rpctypes.Error(err), rpctypes.ErrTooManyOps) {
			t.Errorf("%d comparisons: %v, %v", 100*len(compares), r, err)
		}
		if r, err := kv.Txn(ctx(t), &pb.TxnRequest{Success: times(20, guarded)}); err != nil || len(r.Responses) != 20 {
			t.Errorf("%d comparisons: %v, %v", 20*len(compares), r, err)
		}
	})
}
