package etcdserver_test

import (
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// A lease is granted by one server and renewed at another one. It outlives the first server, does not end before its time to live has
// passed since the last renewal was asked for, and then ends although the server that granted it is gone.
func TestALeaseOutlivesTheServerThatGrantedIt(t *testing.T) {
	t.Parallel()
	for name, url := range engines {
		if name == "memory" { // which has no second handle
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := url(t)
			first, second := open(t, store), open(t, store)
			address, one := start(t, first, nil)
			granting := client(t, address)
			renewing := client(t, serve(t, second, nil))
			const ttl = 5 * time.Second
			id := grant(t, granting, int64(ttl/time.Second))
			put(t, granting, "leased", "", clientv3.WithLease(id))
			w := renewing.Watch(ctx(t), "leased", clientv3.WithFilterPut())
			began := time.Now()
			var renewed time.Time
			for closed := false; time.Since(began) < 2*ttl; {
				asked := time.Now()
				r, err := renewing.KeepAliveOnce(ctx(t), id)
				if err != nil || r.TTL != int64(ttl/time.Second) {
					t.Fatalf("after %v it was renewed for %v, %v", time.Since(began), r, err)
				}
				renewed = asked
				if !closed && time.Since(began) > ttl {
					one.Close()
					closed = true
				}
				select {
				case r := <-w:
					t.Fatalf("a lease that is renewed has ended: %v", r.Events)
				case <-time.After(ttl / 8):
				}
			}
			r := <-w
			if len(r.Events) != 1 || string(r.Events[0].Kv.Key) != "leased" {
				t.Fatalf("at the lease's end: %v, %v", r.Events, r.Err())
			}
			if lived := time.Since(renewed); lived < ttl {
				t.Errorf("it ended %v after it was renewed for %v", lived, ttl)
			}
		})
	}
}
