package etcdserver_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/protobuf/proto"
)

// The merged chunks of a stream equal the response to the same request.
func TestRangeStream(t *testing.T) {
	aloneOnEngines(t, func(t *testing.T, c *clientv3.Client) {
		revision := int64(0)
		for i := range 20 {
			newest := put(t, c, fmt.Sprintf("a/%02d", i), strings.Repeat("x", 512<<10))
			if i < 19 {
				revision = newest
			}
		}
		kv := pb.NewKVClient(c.ActiveConnection())
		for _, r := range []*pb.RangeRequest{
			{Key: []byte("a/"), RangeEnd: []byte("a0")},
			{Key: []byte("a/"), RangeEnd: []byte("a0"), Limit: 15, Revision: revision},
			{Key: []byte("none")},
			{Key: []byte("a/"), RangeEnd: []byte("a0"), CountOnly: true},
		} {
			s, err := kv.RangeStream(ctx(t), r)
			if err != nil {
				t.Fatal(err)
			}
			merged, chunks := &pb.RangeResponse{}, 0
			for {
				chunk, err := s.Recv()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if merged.Header != nil {
					t.Error("a chunk comes after the one with the header")
				}
				proto.Merge(merged, chunk.RangeResponse)
				chunks++
			}
			want, err := c.Get(ctx(t), string(r.Key), clientv3.WithRange(string(r.RangeEnd)),
				clientv3.WithLimit(r.Limit), clientv3.WithRev(r.Revision), count(r.CountOnly))
			if err != nil {
				t.Fatal(err)
			}
			if !proto.Equal(merged, (*pb.RangeResponse)(want)) {
				t.Errorf("%v: %d keys of %d, header %v", r, len(merged.Kvs), len(want.Kvs), merged.Header)
			}
			if len(merged.Kvs) > 10 && chunks < 2 {
				t.Errorf("%d keys came in %d chunks", len(merged.Kvs), chunks)
			}
		}
	})
}

func count(only bool) clientv3.OpOption {
	if only {
		return clientv3.WithCountOnly()
	}
	return func(*clientv3.Op) {}
}
