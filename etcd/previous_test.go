//go:build integration

package etcd_test

import (
	"context"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// withoutPrevious is a watch stream whose events lack previous values, like the first events of a watch that etcd has just registered.
// If stripped is set, it is called for each event, after its value is removed.
type withoutPrevious struct {
	grpc.ClientStream
	stripped func()
}

func (s withoutPrevious) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	resp, ok := m.(*pb.WatchResponse)
	if !ok {
		return nil
	}
	for _, ev := range resp.Events {
		if ev.PrevKv == nil {
			continue
		}
		ev.PrevKv = nil
		if s.stripped != nil {
			s.stripped()
		}
	}
	return nil
}

func stripPrevious(stripped func()) grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, conn *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := stream(ctx, desc, conn, method, opts...)
		return withoutPrevious{s, stripped}, err
	})
}

// Neither the feed nor a resumed watch mistakes a missing previous value for a compaction.
func TestDeletionWithoutPreviousValue(t *testing.T) {
	t.Parallel()
	b := openThrough(t, env.Etcd(t), stripPrevious(nil))
	live := fixture.WatchChanges(t, b)
	start := live.Cursor()
	first := fixture.Write(t, b, service("a"))
	second := fixture.Write(t, b, at(first, first.Version))
	fixture.Remove(t, b, second)
	want := []string{upserted(first), upserted(second), deleted(second)}
	wantNext(t, live, want...)

	resumed, err := b.WatchFrom(fixture.Context(t), serviceType, tenancy, "", start)
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	wantNext(t, resumed, want...)
}

// The cluster is compacted at the revision of a deletion before the watch reads the deleted value.
func TestCompactedPreviousValue(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t)
	client := server.Client(t)
	var compacting atomic.Bool
	b := openThrough(t, server, stripPrevious(func() {
		if compacting.Load() {
			compact(t, client)
		}
	}))
	w := fixture.WatchChanges(t, b)
	res := fixture.Write(t, b, service("a"))
	wantNext(t, w, upserted(res))
	compacting.Store(true)
	fixture.Remove(t, b, res)
	wantEnd(t, w)
}
