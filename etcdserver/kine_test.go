package etcdserver_test

import (
	"errors"
	"fmt"
	"maps"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// Tests of bugs that were found in kine, which also serves etcd's API on SQL databases. The tests of progress that overtakes events
// (kine#731) and of watches that begin at compacted history (kine#747) are in watch_test.go.

// handles returns two handles of a new store. They are identical if only one process can use the store.
func handles(t *testing.T, name, url string) (first, second storage.Backend) {
	t.Helper()
	first = fixture.Open(t, url)
	if name == "memory" {
		return first, first
	}
	return first, fixture.Open(t, url)
}

// Kubernetes serves consistent reads from its cache: it requests the current revision and waits until its watch reports progress up to it.
// The progress must come even without changes to the watched keys, for writes of any client, or such reads hang (kine#577).
// Revision 0, from a server that has seen no change yet, does not count as progress.
func TestProgressReachesReadRevision(t *testing.T) {
	t.Parallel()
	for name, url := range engines {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here, there := handles(t, name, url(t))
			c, other := client(t, serve(t, here, nil)), client(t, serve(t, there, nil))
			s := stream(t, c)
			create(t, s, &pb.WatchCreateRequest{Key: []byte("/quiet/"), RangeEnd: []byte("/quiet0")})
			if r := receive(t, s); !r.Created || r.Header.Revision < 1 {
				t.Fatalf("the watch begins with %v", r)
			}
			for i := range 50 {
				wrote := put(t, other, "/busy", fmt.Sprint(i))
				read, err := c.Get(ctx(t), "/quiet/", clientv3.WithPrefix(), clientv3.WithLimit(1))
				if err != nil {
					t.Fatal(err)
				}
				if read.Header.Revision < wrote {
					t.Fatalf("a read after a write at revision %d has revision %d", wrote, read.Header.Revision)
				}
				ask := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_ProgressRequest{ProgressRequest: &pb.WatchProgressRequest{}}}
				if err := s.Send(ask); err != nil {
					t.Fatal(err)
				}
				if r := receive(t, s); len(r.Events) > 0 || r.WatchId != -1 || r.Header.Revision < read.Header.Revision {
					t.Fatalf("progress after a read at revision %d: %v", read.Header.Revision, r)
				}
			}
		})
	}
}

// Keys with a lease, such as Kubernetes' Events, are deleted once by any server, even if the server that stored them has ended and history
// is compacted beyond them. Watches of every server show each deletion once (kine#289).
func TestExpiredKeysAreDeletedOnce(t *testing.T) {
	t.Parallel()
	for name, url := range aloneOn {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			here, there := handles(t, name, url(t))
			address, granting := start(t, there, nil)
			writer := client(t, address)
			const keys = 20
			long := grant(t, writer, 3600)
			var last int64
			inTime(t, 3, func(ttl int64) bool {
				last = putExpiring(t, writer, keys, ttl, long)
				return last != 0
			})
			clients := []*clientv3.Client{client(t, serve(t, here, nil)), client(t, serve(t, there, nil))}
			granting.Close()
			if _, err := clients[0].Compact(ctx(t), last); err != nil {
				t.Fatal(err)
			}
			var deletions []map[string]int64 // by watch: the revision by key
			for _, c := range clients {
				deleted := map[string]int64{}
				for answer := range c.Watch(ctx(t), "/events/", clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithRev(last+1)) {
					if answer.Err() != nil {
						t.Fatal(answer.Err())
					}
					for _, ev := range answer.Events {
						key := string(ev.Kv.Key)
						if ev.Type != clientv3.EventTypeDelete || string(ev.PrevKv.GetValue()) != "stored" || deleted[key] != 0 {
							t.Errorf("%s: %v, before it %v, deleted before at %d", key, ev.Type, ev.PrevKv, deleted[key])
						}
						deleted[key] = ev.Kv.ModRevision
					}
					if len(deleted) == keys {
						break
					}
				}
				deletions = append(deletions, deleted)
			}
			if !maps.Equal(deletions[0], deletions[1]) {
				t.Errorf("two servers show different deletions: %v and %v", deletions[0], deletions[1])
			}
			left, err := clients[0].Get(ctx(t), "/events/", clientv3.WithPrefix())
			if err != nil || left.Count != 1 || string(left.Kvs[0].Value) != "seen again" {
				t.Errorf("remaining keys: %v, %v", left, err)
			}
		})
	}
}

// putExpiring stores keys with a lease of ttl seconds, and one more key that changes to the lease long. It returns the revision of the last
// put. If the short lease expired meanwhile, it deletes everything and returns 0.
func putExpiring(t *testing.T, c *clientv3.Client, keys int, ttl int64, long clientv3.LeaseID) int64 {
	t.Helper()
	short := grant(t, c, ttl)
	names := []string{"/events/again"}
	for i := range keys {
		names = append(names, fmt.Sprintf("/events/%d", i))
	}
	for _, name := range names {
		if _, err := c.Put(ctx(t), name, "stored", clientv3.WithLease(short)); errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return discardExpiring(t, c)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	last := put(t, c, "/events/again", "seen again", clientv3.WithLease(long))
	stored, err := c.Get(ctx(t), "/events/", clientv3.WithPrefix(), clientv3.WithRev(last), clientv3.WithCountOnly())
	if err != nil {
		t.Fatal(err)
	}
	if stored.Count != int64(keys+1) {
		return discardExpiring(t, c)
	}
	return last
}

func discardExpiring(t *testing.T, c *clientv3.Client) int64 {
	t.Helper()
	if _, err := c.Delete(ctx(t), "/events/", clientv3.WithPrefix()); err != nil {
		t.Fatal(err)
	}
	return 0
}
