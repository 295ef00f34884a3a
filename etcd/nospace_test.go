//go:build integration

package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

func TestNoSpace(t *testing.T) {
	t.Parallel()
	server := env.StartEtcd(t, "--quota-backend-bytes=16777216")
	b := open(t, server.StoreURL(t))
	client := server.Client(t)
	w := fixture.WatchChanges(t, b)

	// Concurrent writers, so one write is in flight when the quota is reached.
	var mu sync.Mutex
	var all []*resourcepb.Resource
	together(4, func(i int) {
		for j := 0; ; j++ {
			if j > 64 {
				t.Error("the server accepted 32 MiB with a quota of 16")
				return
			}
			out, err := b.WriteCAS(fixture.Context(t), sized(fmt.Sprint("s", i, "-", j), 1<<19))
			if err != nil {
				if !errors.Is(err, etcd.ErrNoSpace) || errors.Is(err, storage.ErrInconsistent) {
					t.Errorf("a write without space: %v, want ErrNoSpace", err)
				}
				return
			}
			mu.Lock()
			all = append(all, out)
			mu.Unlock()
		}
	})
	wantEach(t, w, all, upserted)
	// Reads and deletes succeed, also in one batch with writes.
	if got := fixture.Stored(t, b, all[0].Id); got.Version != all[0].Version {
		t.Errorf("read version %s, want %s", got.Version, all[0].Version)
	}
	together(2*len(all), func(i int) {
		if i < len(all) {
			fixture.Remove(t, b, all[i])
			return
		}
		if _, err := b.WriteCAS(fixture.Context(t), service(fmt.Sprint("n", i))); !errors.Is(err, etcd.ErrNoSpace) {
			t.Errorf("a write without space: %v, want ErrNoSpace", err)
		}
	})
	wantEach(t, w, all, deleted)

	compact(t, client)
	if _, err := client.Defragment(fixture.Context(t), server.Endpoint); err != nil {
		t.Fatal(err)
	}
	if _, err := client.AlarmDisarm(fixture.Context(t), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	wantNext(t, w, upserted(fixture.Write(t, b, service("after"))))
}

// wantEach requires one event of each resource next, in any order.
func wantEach(t *testing.T, w storage.Watch, all []*resourcepb.Resource, event func(*resourcepb.Resource) string) {
	t.Helper()
	missing := map[string]bool{}
	for _, res := range all {
		missing[event(res)] = true
	}
	for len(missing) > 0 {
		ev, err := w.Next(fixture.Context(t))
		if err != nil {
			t.Fatal(err)
		}
		if !missing[eventText(ev)] {
			t.Fatalf("event %q, want one of %v", eventText(ev), slices.Collect(maps.Keys(missing)))
		}
		delete(missing, eventText(ev))
	}
}

// noSpace replaces the responses to applied transactions by the error of a server that has reached its quota.
type noSpace struct{ on atomic.Bool }

func (s *noSpace) intercept(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	err := invoke(ctx, method, req, reply, conn, opts...)
	if txn, ok := req.(*pb.TxnRequest); ok && err == nil && s.on.Load() && puts(txn) {
		return rpctypes.ErrGRPCNoSpace
	}
	return err
}

// puts reports whether a transaction needs space.
func puts(txn *pb.TxnRequest) bool {
	return slices.ContainsFunc(txn.Success, func(op *pb.RequestOp) bool {
		return op.GetRequestPut() != nil || op.GetRequestTxn() != nil && puts(op.GetRequestTxn())
	})
}

// The server answers applied writes with NOSPACE.
func TestNoSpaceAfterApply(t *testing.T) {
	t.Parallel()
	server := env.Etcd(t)
	var space noSpace
	b := openThrough(t, server, grpc.WithChainUnaryInterceptor(space.intercept))
	w := fixture.WatchChanges(t, b)

	space.on.Store(true)
	res := fixture.Write(t, b, service("alone"))
	wantNext(t, w, upserted(res))
	next := fixture.Write(t, b, at(res, res.Version))
	wantNext(t, w, upserted(next))
	if _, err := b.WriteCAS(fixture.Context(t), at(res, res.Version)); !errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("a stale write: %v, want ErrCASFailure", err)
	}
	fixture.Remove(t, b, next)
	wantNext(t, w, deleted(next))

	results, err := b.Commit(fixture.Context(t), []storage.Op{{Write: service("first")}, {Write: service("second")}})
	if err != nil {
		t.Fatal(err)
	}
	wantEach(t, w, results, upserted)

	all := make([]*resourcepb.Resource, 64)
	together(len(all), func(i int) {
		out, err := b.WriteCAS(fixture.Context(t), service(fmt.Sprint("many", i)))
		if err != nil {
			t.Errorf("a write in a batch: %v", err)
			return
		}
		all[i] = out
	})
	wantEach(t, w, all, upserted)
	together(len(all), func(i int) { fixture.Remove(t, b, all[i]) })
	wantEach(t, w, all, deleted)
}
