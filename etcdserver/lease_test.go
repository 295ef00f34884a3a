package etcdserver_test

import (
	"errors"
	"fmt"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// grant creates a lease that outlives the test, unless ttl is shorter.
func grant(t *testing.T, c *clientv3.Client, ttl int64) clientv3.LeaseID {
	t.Helper()
	l, err := c.Grant(ctx(t), ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l.ID
}

// inTime calls try with a short time to live, in seconds, and with longer ones while try reports that the lease expired before the test had
// used it, because the machine was too slow.
func inTime(t *testing.T, short int64, try func(ttl int64) bool) {
	t.Helper()
	for ttl := short; !try(ttl); ttl *= 4 {
		if ttl > 300 {
			t.Fatalf("a lease of %d seconds expired before its use", ttl)
		}
		t.Logf("a lease of %d seconds expired before its use, trying a longer one", ttl)
	}
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
			short := int64(3600)
			if name == "expires" {
				short = 2
			}
			inTime(t, short, func(ttl int64) bool { return takesItsKeysAlong(t, c, name, ttl, end) })
		}
	})
}

// takesItsKeysAlong puts keys with a lease, ends the lease, and checks which keys are deleted. It returns false if the lease expired
// earlier.
func takesItsKeysAlong(t *testing.T, c *clientv3.Client, name string, ttl int64, end func(id clientv3.LeaseID)) bool {
	t.Helper()
	prefix := fmt.Sprintf("%s-%d", name, ttl)
	id := grant(t, c, ttl)
	w := c.Watch(ctx(t), prefix, clientv3.WithPrefix(), clientv3.WithPrevKV(), clientv3.WithFilterPut())
	var revision int64
	for _, p := range []struct {
		key, value string
		lease      clientv3.LeaseID
	}{{"/left", "", id}, {"/left", "", 0}, {"/1", "a", id}, {"/2", "b", id}} { // a put without the lease detaches the key
		r, err := c.Put(ctx(t), prefix+p.key, p.value, clientv3.WithLease(p.lease))
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		revision = r.Header.Revision
	}
	r, err := c.Get(ctx(t), prefix+"/2", clientv3.WithRev(revision))
	if err != nil || len(r.Kvs) != 1 || r.Kvs[0].Lease != int64(id) || r.Kvs[0].ModRevision != revision {
		t.Fatalf("put at revision %d with lease %x: %v, %v", revision, id, r, err)
	}
	first, err := c.Get(ctx(t), prefix+"/1", clientv3.WithRev(revision))
	if err != nil || len(first.Kvs) != 1 {
		t.Fatalf("put before revision %d with lease %x: %v, %v", revision, id, first, err)
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
	if ended[prefix+"/1=a"] != int64(id) || ended[prefix+"/2=b"] != int64(id) {
		t.Errorf("%s: the lease deleted %v", name, ended)
	}
	if r, err = c.Get(ctx(t), prefix+"/left"); err != nil || len(r.Kvs) != 1 {
		t.Errorf("%s: a detached key: %v, %v", name, r, err)
	}
	if _, err = c.Put(ctx(t), prefix, "", clientv3.WithLease(id)); !errors.Is(err, rpctypes.ErrLeaseNotFound) {
		t.Errorf("%s: put with a lease that has ended: %v", name, err)
	}
	return true
}
