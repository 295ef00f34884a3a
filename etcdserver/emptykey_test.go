package etcdserver_test

import (
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// A watch without a key and an end is of the key NUL, as in etcd, and no stored key is that.
func TestWatchWithoutKeyAndEnd(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		s := stream(t, c)
		create(t, s, &pb.WatchCreateRequest{})
		if r := receive(t, s); !r.Created || r.Canceled {
			t.Fatal(r)
		}
		put(t, c, "\x01", "")
		progress := &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}
		if err := s.Send(&pb.WatchRequest{RequestUnion: progress}); err != nil {
			t.Fatal(err)
		}
		if r := receive(t, s); len(r.Events) > 0 {
			t.Errorf("a change of another key: %v", r)
		}
	})
}
