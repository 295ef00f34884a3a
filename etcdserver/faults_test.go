//go:build integration

package etcdserver_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// The responses to clients are true while the connections to the database break. An acknowledged write exists, and a watch has shown it
// once, at its revision. A rejected write does not exist. All other errors leave the outcome open.
func TestAnswersAreTrueWhileConnectionsBreak(t *testing.T) {
	t.Parallel()
	for name, behind := range map[string]func(t *testing.T) (*faultproxy.Proxy, string){
		"postgres": func(t *testing.T) (*faultproxy.Proxy, string) {
			server := env.Postgres(t)
			p := faultproxy.New(t, server.Addr)
			return p, server.At(t, p.Addr()).StoreURL(t, "timeout=3s")
		},
		"etcd": func(t *testing.T) (*faultproxy.Proxy, string) {
			server := env.StartEtcd(t)
			p := faultproxy.New(t, server.Endpoint)
			through := &env.EtcdServer{Container: server.Container, Endpoint: p.Addr()}
			return p, through.StoreURL(t, "timeout=3s")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, url := behind(t)
			answersAreTrue(t, p, client(t, serve(t, fixture.Open(t, url), nil)))
		})
	}
}

// keyChange is the change of one key, with the response to it.
type keyChange struct {
	key      string
	deletes  bool
	revision int64 // 0 if it was not acknowledged
	open     bool  // the outcome is unknown
}

func answersAreTrue(t *testing.T, p *faultproxy.Proxy, c *clientv3.Client) {
	t.Helper()
	const writers, rounds = 6, 15
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	lease := grant(t, c, 3600)
	w := c.Watch(ctx, "w/", clientv3.WithPrefix(), clientv3.WithRev(put(t, c, "begin", "")))
	answers := make(chan struct{}, writers*rounds)
	var mu sync.Mutex
	var all []keyChange
	note := func(err error, header func() *pb.ResponseHeader, some ...keyChange) (known bool) {
		answers <- struct{}{}
		code := status.Code(err)
		if known := (rpctypes.EtcdError{}); errors.As(err, &known) {
			code = known.Code()
		}
		open := code == codes.Unavailable || code == codes.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
		if err != nil && !open {
			t.Errorf("%v: %v", some, err)
		}
		mu.Lock()
		defer mu.Unlock()
		for _, one := range some {
			if one.open = open; err == nil {
				one.revision = header().Revision
			}
			all = append(all, one)
		}
		return err == nil
	}
	var writing sync.WaitGroup
	for n := range writers {
		writing.Go(func() {
			last := ""
			for i := range rounds {
				key := fmt.Sprintf("w/%d-%d", n, i)
				switch i % 5 {
				case 0:
					r, err := c.Put(ctx, key, "")
					note(err, func() *pb.ResponseHeader { return r.Header }, keyChange{key: key})
				case 1:
					r, err := c.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(key), "=", 0)).Then(clientv3.OpPut(key, "")).
						Else(clientv3.OpGet(key)).Commit()
					if note(err, func() *pb.ResponseHeader { return r.Header }, keyChange{key: key}) && !r.Succeeded {
						t.Errorf("%s, which has no other writer, is reported as existing: %v", key, r.Responses)
					}
				case 2:
					r, err := c.Txn(ctx).Then(clientv3.OpPut(key, ""), clientv3.OpPut(key+"+", "")).Commit()
					note(err, func() *pb.ResponseHeader { return r.Header }, keyChange{key: key}, keyChange{key: key + "+"})
				case 3:
					r, err := c.Put(ctx, key, "", clientv3.WithLease(lease))
					if last = ""; note(err, func() *pb.ResponseHeader { return r.Header }, keyChange{key: key}) {
						last = key
					}
				case 4:
					if last == "" {
						continue
					}
					r, err := c.Delete(ctx, last)
					if note(err, func() *pb.ResponseHeader { return r.Header }, keyChange{key: last, deletes: true}) && r.Deleted != 1 {
						t.Errorf("%s was there, and %d keys were deleted", last, r.Deleted)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { defer close(done); writing.Wait() }()
	advance := func(by int) {
		for range by {
			select {
			case <-answers:
			case <-done:
			}
		}
	}
	for going := true; going; {
		advance(7)
		p.Cut()
		advance(5)
		p.Refuse()
		advance(2)
		p.Resume()
		advance(5)
		p.Stall()
		advance(2)
		p.Cut()
		p.Resume()
		select {
		case <-done:
			going = false
		default:
		}
	}
	for { // the last change ends the watch
		if _, err := c.Put(ctx, "w/end", ""); err == nil {
			break
		}
	}
	seen := map[string][]int64{}
	for newest := int64(0); len(seen["w/end"]) == 0; {
		r := <-w
		if r.Err() != nil {
			t.Fatal(r.Err())
		}
		for _, ev := range r.Events {
			if ev.Kv.ModRevision < newest {
				t.Errorf("revision %d comes after %d", ev.Kv.ModRevision, newest)
			}
			newest = ev.Kv.ModRevision
			name := string(ev.Kv.Key)
			if ev.Type == clientv3.EventTypeDelete {
				name = "no " + name
			}
			seen[name] = append(seen[name], newest)
		}
	}
	opened := 0
	for _, one := range all {
		name := one.key
		if one.deletes {
			name = "no " + name
		}
		switch at := seen[name]; {
		case len(at) > 1:
			t.Errorf("%s was seen at revisions %d", name, at)
		case one.revision > 0 && (len(at) == 0 || at[0] > one.revision):
			t.Errorf("%s was acknowledged at revision %d and seen at %d", name, one.revision, at)
		case one.revision == 0 && !one.open && len(at) > 0:
			t.Errorf("%s was refused, and seen at %d", name, at)
		case one.open:
			opened++
		}
	}
	t.Logf("of %d changes, %d had no known outcome", len(all), opened)
}
