package etcdserver_test

import (
	"errors"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// grant makes a lease that outlives the test, unless it is given less time.
func grant(t *testing.T, c *clientv3.Client, ttl int64) clientv3.LeaseID {
	t.Helper()
	l, err := c.Grant(ctx(t), ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l.ID
}

func TestALeaseTakesItsKeysAlong(t *testing.T) {
	onEngines(t, func(t *testing.T, c *clientv3.Client) {
		for name, end := range map[string]func(id clientv3.LeaseID){
			"expires": func(clientv3.LeaseID) {},
			"revoked": func(id clientv3.LeaseID) {
				if _, err := c.Revoke(ctx(t), id); err != nil {
					t.Error(err)
				}
			},
		} {
			ttl := int64(3600)
			if name == "expires" {
				ttl = 2
			}
			id := grant(t, c, ttl)
			w := c.Watch(ctx(t), name, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithFilterPut())
			put(t, c, name+"/left", "", clientv3.WithLease(id))
			put(t, c, name+"/left", "") // a key that is put without its lease has left it
			put(t, c, name+"/1", "a", clientv3.WithLease(id))
			revision := put(t, c, name+"/2", "b", clientv3.WithLease(id))
			r, err := c.Get(ctx(t), name+"/2")
			if err != nil || len(r.Kvs) != 1 || r.Kvs[0].Lease != int64(id) || r.Kvs[0].ModRevision != revision {
				t.Fatalf("put at revision %d with lease %x: %v, %v", revision, id, r, err)
			}
			end(id)
			ended := map[string]int64{}
			for len(ended) < 2 {
				answer := <-w
				if answer.Err() != nil {
					t.Fatal(answer.Err())
				}
				for _, ev := range answer.Events {
					ended[string(ev.Kv.Key)+"="+string(ev.PrevKv.GetValue())] = ev.PrevKv.GetLease()
				}
			}
			if ended[name+"/1=a"] != int64(id) || ended[name+"/2=b"] != int64(id) {
				t.Errorf("%s: the lease took along %v", name, ended)
			}
			if r, err = c.Get(ctx(t), name+"/left"); err != nil || len(r.Kvs) != 1 {
				t.Errorf("%s: a key that had left its lease: %v, %v", name, r, err)
			}
			if _, err = c.Put(ctx(t), name, "", clientv3.WithLease(id)); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
				t.Errorf("%s: put with a lease that has ended: %v", name, err)
			}
		}
	})
}
