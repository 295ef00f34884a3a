package etcdserver_test

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// A store that has moved answers no read of the newest state, whether it is a range or a transaction that only reads.
func TestReadsOfAMovedStore(t *testing.T) {
	t.Parallel()
	b := fixture.Open(t, "mem://")
	s, err := etcdserver.New(b, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Put(t.Context(), &pb.PutRequest{Key: []byte("a"), Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	read := &pb.RangeRequest{Key: []byte("a")}
	ops := []*pb.RequestOp{{Request: &pb.RequestOp_RequestRange{RequestRange: read}}, {Request: &pb.RequestOp_RequestRange{RequestRange: &pb.RangeRequest{Key: []byte("b")}}}}
	reads := func() map[string]error {
		_, one := s.Range(t.Context(), read)
		_, only := s.Txn(t.Context(), &pb.TxnRequest{Success: ops})
		absent := &pb.Compare{Key: []byte("a"), Target: pb.Compare_VERSION, Result: pb.Compare_EQUAL, TargetUnion: &pb.Compare_Version{}}
		put := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: &pb.PutRequest{Key: []byte("a")}}}
		_, failed := s.Txn(t.Context(), &pb.TxnRequest{Compare: []*pb.Compare{absent}, Success: []*pb.RequestOp{put}, Failure: ops})
		return map[string]error{"a range": one, "a transaction of ranges": only, "a transaction whose comparison fails": failed}
	}
	for what, err := range reads() {
		if err != nil {
			t.Errorf("%s of an open store: %v", what, err)
		}
	}
	m, _ := storage.As[driver.GuardedMover](b)
	if _, err := m.SetFenceAt(t.Context(), &driver.Fence{Target: "mem://there", Moved: true}, ""); err != nil {
		t.Fatal(err)
	}
	for what, err := range reads() {
		if status.Code(err) != codes.FailedPrecondition {
			t.Errorf("%s of a store that has moved: %v, expected the error of the move", what, err)
		}
	}
}
