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

// answers lets a test act on each answer of etcd to who reads history: after the server gave it, and before the reader has it.
// The feed's own watch, which is told by the key it begins with, breaks once the test acts, so that no answer is about it.
type answers struct {
	feed string // the key that the feed's watch begins with
	mu   sync.Mutex
	act  func(events int) // nil: nothing yet
}

func (a *answers) came(events int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.act != nil {
		a.act(events)
	}
}

func (a *answers) set(act func(events int)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.act = act
}

// unary is a grpc.UnaryClientInterceptor. History asks for counts only: for the newest revision, and whether one is kept.
func (a *answers) unary(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if get, ok := req.(*pb.RangeRequest); ok && err == nil && get.CountOnly {
		a.came(0)
	}
	return err
}

// stream is a grpc.StreamClientInterceptor.
func (a *answers) stream(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	s, err := open(ctx, desc, conn, method, opts...)
	return &answeredStream{ClientStream: s, answers: a}, err
}

type answeredStream struct {
	grpc.ClientStream
	answers *answers
	feed    atomic.Bool
}

func (s *answeredStream) SendMsg(m any) error {
	if create := m.(*pb.WatchRequest).GetCreateRequest(); create != nil {
		s.feed.Store(string(create.Key) == s.answers.feed)
		s.answers.mu.Lock()
		defer s.answers.mu.Unlock()
		if s.feed.Load() && s.answers.act != nil {
			return errors.New("the test breaks the feed's watch")
		}
	}
	return s.ClientStream.SendMsg(m)
}

func (s *answeredStream) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if err == nil && !s.feed.Load() {
		s.answers.came(len(m.(*pb.WatchResponse).Events))
	}
	return err
}

// historyRig is a store with a history of several responses, which a handle behind a proxy is going to read.
type historyRig struct {
	*answers
	server *env.EtcdServer
	proxy  *faultproxy.Proxy
	behind *etcd.Backend
	cursor string   // before the history
	want   []string // the history
}

func newHistoryRig(t *testing.T) *historyRig {
	t.Helper()
	server := env.StartEtcd(t) // of its own: one test compacts it
	prefix := server.Prefix(t)
	r := &historyRig{answers: &answers{feed: prefix + "/\x00r"}, server: server, proxy: faultproxy.New(t, server.Endpoint)}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: []string{r.proxy.Addr()}, Logger: zap.NewNop(),
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(r.unary), grpc.WithChainStreamInterceptor(r.stream)},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	if r.behind, err = etcd.New(fixture.Context(t), client, &etcd.Options{Prefix: prefix}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.behind.Close() })
	r.cursor = fixture.WatchChanges(t, r.behind).Cursor()
	const changes, bytes = 100, 64 << 10 // the server sends fragments of 1.5 MiB; a page has 4 MiB
	for i := range changes {
		r.want = append(r.want, upserted(fixture.Write(t, r.behind, sized(fmt.Sprint("s", i), bytes))))
	}
	return r
}

func (r *historyRig) resume(t *testing.T) storage.Watch {
	t.Helper()
	w, err := r.behind.WatchFrom(fixture.Context(t), serviceType, tenancy, "s", r.cursor)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// TestHistoryThroughABreakingConnection reads history over connections each of which brings two answers.
func TestHistoryThroughABreakingConnection(t *testing.T) {
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
	wantNext(t, w, upserted(fixture.Write(t, r.behind, service("s-after"))))
}

// TestHistoryCompactedBeforeItsProof compacts the cluster between an answer with events and the one that would prove that
// none is missing.
func TestHistoryCompactedBeforeItsProof(t *testing.T) {
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
