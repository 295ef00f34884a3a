//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/faultproxy"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// responseHook calls a function of the test for each response to a reader of history, before the reader gets it. The feed's own watch
// fails while the function is set, so all responses are for the reader.
type responseHook struct {
	feed string // the start key of the feed's watch
	mu   sync.Mutex
	act  func(events int) // nil: none
}

func (a *responseHook) run(events int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.act != nil {
		a.act(events)
	}
}

func (a *responseHook) set(act func(events int)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.act = act
}

// unary is a grpc.UnaryClientInterceptor. A reader of history sends only count requests, for the newest revision and for checkRetained.
func (a *responseHook) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if get, ok := req.(*pb.RangeRequest); ok && err == nil && get.CountOnly {
		a.run(0)
	}
	return err
}

// stream is a grpc.StreamClientInterceptor.
func (a *responseHook) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, conn, method, opts...)
	return &hookedStream{ClientStream: s, hook: a}, err
}

type hookedStream struct {
	grpc.ClientStream
	hook *responseHook
	feed atomic.Bool
}

func (s *hookedStream) SendMsg(m any) error {
	if create := m.(*pb.WatchRequest).GetCreateRequest(); create != nil {
		s.feed.Store(string(create.Key) == s.hook.feed)
		s.hook.mu.Lock()
		defer s.hook.mu.Unlock()
		if s.feed.Load() && s.hook.act != nil {
			return errors.New("the test breaks the feed's watch")
		}
	}
	return s.ClientStream.SendMsg(m)
}

func (s *hookedStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && !s.feed.Load() {
		s.hook.run(len(m.(*pb.WatchResponse).Events))
	}
	return err
}

// historyRig is a store with a history of several responses, and a backend, proxied, that reads it through a proxy.
type historyRig struct {
	*responseHook
	server  *env.EtcdServer
	proxy   *faultproxy.Proxy
	proxied *etcd.Backend
	cursor  string   // the position before the history
	want    []string // the events of the history
}

func newHistoryRig(t *testing.T) *historyRig {
	t.Helper()
	server := env.StartEtcd(t) // not shared, because one test compacts it
	prefix := server.Prefix(t)
	r := &historyRig{responseHook: &responseHook{feed: prefix + "/\x00r"}, server: server, proxy: faultproxy.New(t, server.Endpoint)}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{r.proxy.Addr()}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(r.unary), grpc.WithChainStreamInterceptor(r.stream)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if r.proxied, err = etcd.New(fixture.Context(t), client, &etcd.Options{Prefix: prefix}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.proxied.Close() })
	r.cursor = fixture.WatchChanges(t, r.proxied).Cursor()
	const changes, bytes = 40, 160 << 10 // the server sends fragments of 1.5 MiB; a page has 4 MiB
	for i := range changes {
		r.want = append(r.want, upserted(fixture.Write(t, r.proxied, sized(fmt.Sprint("s", i), bytes))))
	}
	return r
}

func (r *historyRig) resume(t *testing.T) storage.Watch {
	t.Helper()
	w, err := r.proxied.WatchFrom(fixture.Context(t), serviceType, tenancy, "s", r.cursor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// A reader gets all history over connections that break after two responses each.
func TestHistoryOverBrokenConnections(t *testing.T) {
	t.Parallel()
	r := newHistoryRig(t)
	w := r.resume(t)
	n := 0
	r.set(func(int) {
		if n++; n%2 == 0 {
			r.proxy.Cut()
		}
	})
	wantNext(t, w, r.want...)
	r.set(nil)
	wantNext(t, w, upserted(fixture.Write(t, r.proxied, service("s-after"))))
}

// The cluster is compacted between a response with events and the check that the history is retained.
func TestHistoryCompactedBeforeCheck(t *testing.T) {
	t.Parallel()
	r := newHistoryRig(t)
	w := r.resume(t)
	client := r.server.Client(t)
	var once sync.Once
	r.set(func(events int) {
		if events > 0 {
			once.Do(func() {
				r.proxy.Cut()
				compact(t, client)
			})
		}
	})
	wantEnd(t, w)
}
