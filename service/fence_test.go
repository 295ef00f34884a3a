package service_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/clientstore"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
	"github.com/ashlar-dev/storage/service"
	"github.com/ashlar-dev/storage/service/registry"
)

// commitCounter is a backend that counts transactions and waits at each until it is released.
type commitCounter struct {
	storage.Backend
	mu    sync.Mutex
	sizes []int
	hold  chan struct{}
}

func (c *commitCounter) As(target any) bool {
	if tx, ok := target.(*storage.Transactor); ok {
		*tx = c
		return true
	}
	return false
}

func (c *commitCounter) MaxOps() int { return 32 }

func (c *commitCounter) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	c.mu.Lock()
	c.sizes = append(c.sizes, len(ops))
	c.mu.Unlock()
	<-c.hold
	tx, _ := storage.As[storage.Transactor](c.Backend)
	return tx.Commit(ctx, ops)
}

func fencedContext(ctx context.Context, t *testing.T, op storage.Op) context.Context {
	t.Helper()
	encoded, err := proto.Marshal(&resourcepb.Resource{Id: op.Check, Version: op.Version})
	if err != nil {
		t.Fatal(err)
	}
	return metadata.AppendToOutgoingContext(ctx, "ashlar-fence-bin", string(encoded))
}

// fencedServer returns a server, and a context with the fence of a tenure.
func fencedServer(t *testing.T, backend storage.Backend) (resourcegrpc.ResourceServiceClient, context.Context, *lease.Tenure) {
	t.Helper()
	ctx := fixture.Context(t)
	elector, err := lease.NewElector(backend, fixture.Tenancy, "lock", nil)
	if err != nil {
		t.Fatal(err)
	}
	tenure, err := elector.Campaign(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tenure.Resign(context.Background()) })
	return service.New(backend, registry.NewOpen(registry.Type{}), nil).Client(), fencedContext(ctx, t, tenure.Fence()), tenure
}

// Every kind of write succeeds with the fence of the current tenure, and changes nothing with that of an earlier one.
func TestFenceStopsEveryKindOfWrite(t *testing.T) {
	t.Parallel()
	backend := inmem.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	c, ctx, tenure := fencedServer(t, backend)
	plain := fixture.Context(t)
	stored, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: album("one", "a")})
	if err != nil {
		t.Fatal(err)
	}
	statusOf := &resourcepb.WriteStatusRequest{Id: stored.GetResource().GetId(), Key: "k", Status: &resourcepb.Status{ObservedGeneration: stored.GetResource().GetGeneration()}}
	if _, err := c.WriteStatus(ctx, statusOf); err != nil {
		t.Fatal(err)
	}
	child := album("child", "c")
	child.Owner = proto.CloneOf(stored.GetResource().GetId())
	child.Owner.Uid = "01ARZ3NDEKTSV4RRFFQ69G5FAV" // no such incarnation: the write also stores a tombstone
	writes := map[string]func(context.Context) error{
		"create": func(ctx context.Context) error {
			_, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: album("two", "b")})
			return err
		},
		"update": func(ctx context.Context) error {
			_, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: album("one", "b")})
			return err
		},
		"orphan": func(ctx context.Context) error {
			_, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: child})
			return err
		},
		"status": func(ctx context.Context) error {
			_, err := c.WriteStatus(ctx, statusOf)
			return err
		},
		"delete": func(ctx context.Context) error {
			_, err := c.Delete(ctx, &resourcepb.DeleteRequest{Id: stored.GetResource().GetId()})
			return err
		},
	}
	if err := tenure.Resign(plain); err != nil {
		t.Fatal(err)
	}
	everything := func() string {
		all, err := backend.List(plain, storage.StrongConsistency, fixture.AllTypes, fixture.AllTenancies, "")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(all)
	}
	before := everything()
	for name, write := range writes {
		if err := write(ctx); status.Code(err) != codes.Aborted || clientstore.Reason(err) != "LEASE_LOST" {
			t.Errorf("%s with the fence of a tenure that has ended: %v", name, err)
		}
	}
	if after := everything(); after != before {
		t.Errorf("the store has changed from %s to %s", before, after)
	}
	for _, name := range []string{"create", "update", "orphan", "status", "delete"} {
		if err := writes[name](plain); err != nil {
			t.Errorf("%s without a fence: %v", name, err)
		}
	}
}

func TestFenceMustBeARecordOfALock(t *testing.T) {
	t.Parallel()
	c := newClient(t)
	ctx := fixture.Context(t)
	stored, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: album("one", "a")})
	if err != nil {
		t.Fatal(err)
	}
	foreign := fencedContext(ctx, t, storage.Op{Check: stored.GetResource().GetId(), Version: stored.GetResource().GetVersion()})
	for name, ctx := range map[string]context.Context{"foreign": foreign, "garbage": metadata.AppendToOutgoingContext(ctx, "ashlar-fence-bin", "\xff")} {
		if _, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: album("two", "b")}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Concurrent writes with one fence share transactions, and a conflict in a shared one fails only the write that causes it.
func TestFencedWritesShareTransactions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := inmem.New(nil)
		defer inner.Close()
		_, ctx, tenure := fencedServer(t, inner)
		defer tenure.Resign(context.Background())
		counter := &commitCounter{Backend: inner, hold: make(chan struct{})}
		c := service.New(counter, registry.NewOpen(registry.Type{}), nil).Client()
		write := func(name string) error {
			_, err := c.Write(ctx, &resourcepb.WriteRequest{Resource: album(name, "x"), Create: true})
			return err
		}
		const writers = 10
		errs := make([]error, writers+2)
		var running sync.WaitGroup
		start := func(i int, name string) {
			running.Go(func() { errs[i] = write(name) })
			synctest.Wait()
		}
		start(0, "first") // its transaction is in flight until all others wait
		for i := range writers {
			start(1+i, fmt.Sprintf("a-%d", i))
		}
		taken := album("a-3", "other")
		taken.Id.Uid, taken.Id.Tenancy = "other", fixture.Tenancy
		if _, err := inner.WriteCAS(ctx, taken); err != nil {
			t.Fatal(err)
		}
		start(writers+1, "a-4") // a second creation waits for a transaction without the first one
		close(counter.hold)
		running.Wait()
		for i, err := range errs {
			if isConflict := i == 1+3 || i == writers+1; (err != nil) != isConflict {
				t.Errorf("writer %d: %v", i, err)
			}
		}
		if want := []int{2, 1 + writers, writers, 2}; !slices.Equal(counter.sizes, want) {
			t.Errorf("transactions of %v operations, expected %v: alone, all, without the conflict, the second creation", counter.sizes, want)
		}
	})
}
