package etcdserver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// The first server grants a lease, and the second renews it. It outlives the first server, does not end before its time to live has
// passed since the last renewal request, and then ends although the server that granted it is closed.
func TestALeaseOutlivesTheServerThatGrantedIt(t *testing.T) {
	t.Parallel()
	for name, url := range engines {
		if name == "memory" { // memory has no second handle
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inTime(t, 3, func(ttl int64) bool { return outlivesItsServer(t, url(t), time.Duration(ttl)*time.Second) })
		})
	}
}

// outlivesItsServer returns false if the test itself renewed the lease too late.
func outlivesItsServer(t *testing.T, store string, ttl time.Duration) bool {
	t.Helper()
	first, second := fixture.Open(t, store), fixture.Open(t, store)
	address, one := start(t, first, nil)
	granting := client(t, address)
	renewing := client(t, serve(t, second, nil))
	renewed := time.Now()
	id := grant(t, granting, int64(ttl/time.Second))
	_, err := granting.Put(ctx(t), "leased", "", clientv3.WithLease(id))
	if errors.Is(err, rpctypes.ErrLeaseNotFound) && time.Since(renewed) >= ttl {
		return false
	}
	if err != nil {
		t.Fatal(err)
	}
	watchCtx, cancel := context.WithTimeout(t.Context(), 3*time.Minute+4*ttl) // the lease ends after about three times its ttl
	defer cancel()
	w := renewing.Watch(watchCtx, "leased", clientv3.WithFilterPut())
	began := time.Now()
	for closed := false; time.Since(began) < 2*ttl; {
		asked := time.Now()
		r, err := renewing.KeepAliveOnce(ctx(t), id)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) && time.Since(renewed) >= ttl {
			return false
		}
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
			if time.Since(renewed) >= ttl {
				return false
			}
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
	return true
}
