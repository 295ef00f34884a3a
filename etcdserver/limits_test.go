package etcdserver_test

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// overhead is the difference between 1 MiB and the largest value, apart from the bytes of its key: docs/etcd.md documents it.
const overhead = 100

// A value can have 1 MiB minus its key and a small overhead. Larger values, and values that are too large together, are rejected
// like requests above etcd's own limit.
func TestLargestValues(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		large := strings.Repeat("v", 1<<20)
		for _, n := range []int{1, 100, 300, 600, 762} {
			key := strings.Repeat("k", n)
			base := 1<<20 - n - overhead
			size := base + sort.Search(overhead, func(more int) bool {
				_, err := c.Put(ctx(t), key, large[:base+more])
				if err != nil && !errors.Is(err, rpctypes.ErrRequestTooLarge) {
					t.Fatal(err)
				}
				return err != nil
			}) - 1
			if size < base || size == base+overhead-1 {
				t.Fatalf("the largest value of a key of %d bytes has %d, expected between %d and %d", n, size, base, base+overhead)
			}
			put(t, c, key, large[:size])
			r, err := c.Get(ctx(t), key)
			if err != nil || len(r.Kvs) != 1 || len(r.Kvs[0].Value) != size {
				t.Errorf("the largest value of a key of %d bytes: %v", n, err)
			}
			if _, err := c.Delete(ctx(t), key); err != nil {
				t.Fatal(err)
			}
		}
		put(t, c, "here", "small")
		lease := grant(t, c, 3600)
		is := clientv3.Compare(clientv3.Version("here"), "=", 1)
		for name, puts := range map[string][]clientv3.Op{
			"a value":                     {clientv3.OpPut("here", large)},
			"a value with a lease":        {clientv3.OpPut("here", large, clientv3.WithLease(lease))},
			"two values, each of which":   {clientv3.OpPut("here", large[:1<<19]), clientv3.OpPut("there", large[:1<<19])},
			"a value, beside a deletion,": {clientv3.OpPut("there", large), clientv3.OpDelete("here")},
		} {
			if _, err := c.Txn(ctx(t)).If(is).Then(puts...).Commit(); !errors.Is(err, rpctypes.ErrRequestTooLarge) {
				t.Errorf("%s: %v, expected ErrRequestTooLarge", name, err)
			}
		}
		if r, err := c.Get(ctx(t), "", clientv3.WithPrefix()); err != nil || r.Count != 1 || string(r.Kvs[0].Value) != "small" {
			t.Errorf("after the rejected requests the store has %v, %v, expected only the first value", r, err)
		}
	})
}

// Keys that are not UTF-8, contain a NUL or are too long are rejected with a reason when they are written. Reads do not find them, and a
// rejected request has no other effect.
func TestRejectedKeys(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		put(t, c, "here", "")
		kv := pb.NewKVClient(c.ActiveConnection())
		for reason, key := range map[string]string{
			"not valid UTF-8":       "\xff\xfe",
			"contains a NUL byte":   "a\x00b",
			"the maximum is 762":    strings.Repeat("k", 763),
			"crosses byte 254":      strings.Repeat("k", 253) + "é",
			"crosses byte 508":      strings.Repeat("k", 507) + "é",
			"is not valid UTF-8":    "\x00\x00\x01\x80",
			"cannot be stored: it ": "\xed\xa0\x80",
		} {
			one := &pb.PutRequest{Key: []byte(key)}
			puts := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: one}}
			absent := &pb.Compare{Key: one.Key, Target: pb.Compare_VERSION} // equal to 0
			there := &pb.Compare{Key: one.Key, Target: pb.Compare_VERSION, Result: pb.Compare_GREATER}
			for what, call := range map[string]func() (fmt.Stringer, error){
				"put": func() (fmt.Stringer, error) { return kv.Put(ctx(t), one) },
				"put what is there": func() (fmt.Stringer, error) {
					return kv.Put(ctx(t), &pb.PutRequest{Key: one.Key, IgnoreValue: true})
				},
				"create": func() (fmt.Stringer, error) {
					return kv.Txn(ctx(t), &pb.TxnRequest{Compare: []*pb.Compare{absent}, Success: []*pb.RequestOp{puts}})
				},
				"put beside another": func() (fmt.Stringer, error) {
					return kv.Txn(ctx(t), &pb.TxnRequest{Success: []*pb.RequestOp{putOp("beside"), puts}})
				},
				"put after a deletion": func() (fmt.Stringer, error) {
					return kv.Txn(ctx(t), &pb.TxnRequest{Success: []*pb.RequestOp{deleteOp("here", ""), txnOp(puts)}})
				},
			} {
				if answer, err := call(); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), reason) {
					t.Errorf("%s: %v, %v, expected InvalidArgument with %q", what, answer, err, reason)
				}
			}
			r, err := kv.Txn(ctx(t), &pb.TxnRequest{
				Compare: []*pb.Compare{absent},
				Success: []*pb.RequestOp{rangeOp(&pb.RangeRequest{Key: one.Key}), deleteOp(key, ""), putOp("beside")},
			})
			if err != nil || !r.Succeeded || r.Responses[0].GetResponseRange().Count+r.Responses[1].GetResponseDeleteRange().Deleted != 0 {
				t.Errorf("%s, absent: %v, %v", reason, r, err)
			}
			r, err = kv.Txn(ctx(t), &pb.TxnRequest{Compare: []*pb.Compare{there}, Success: []*pb.RequestOp{puts}})
			if err != nil || r.Succeeded {
				t.Errorf("%s, there: %v, %v", reason, r, err)
			}
			if found, err := kv.Range(ctx(t), &pb.RangeRequest{Key: one.Key}); err != nil || found.Count != 0 {
				t.Errorf("%s, range: %v, %v", reason, found, err)
			}
			if _, err := c.Delete(ctx(t), "beside"); err != nil {
				t.Fatal(err)
			}
		}
		r, err := c.Get(ctx(t), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
		if err != nil || r.Count != 1 || string(r.Kvs[0].Key) != "here" {
			t.Errorf("after the rejected requests the store has %v, %v, expected only the first key", r, err)
		}
	})
}

// A watch of a key that writes reject returns no events. A watch of a range with such bounds returns the keys in it.
func TestWatchesOfRejectedKeys(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		of := c.Watch(ctx(t), "\xff", clientv3.WithCreatedNotify())
		between := c.Watch(ctx(t), "a\xff", clientv3.WithRange("c\x00"), clientv3.WithCreatedNotify())
		for _, w := range []clientv3.WatchChan{of, between} {
			if r := <-w; !r.Created || r.Err() != nil {
				t.Fatal(r, r.Err())
			}
		}
		for _, key := range []string{"a", "d", "b", "c"} {
			put(t, c, key, "")
		}
		shown := ""
		for len(shown) < 2 {
			r := <-between
			if r.Err() != nil {
				t.Fatal(r.Err())
			}
			for _, ev := range r.Events {
				shown += string(ev.Kv.Key)
			}
		}
		if shown != "bc" {
			t.Errorf("the watch of the range returned %q, expected bc", shown)
		}
		if err := c.RequestProgress(ctx(t)); err != nil {
			t.Fatal(err)
		}
		select {
		case r := <-of:
			if r.Err() != nil || len(r.Events) > 0 {
				t.Errorf("the watch of an invalid key returned %v, %v, expected no event", r.Events, r.Err())
			}
		case <-between:
		}
	})
}
