package controllertest

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

// A manager whose leases are in another store than the resources cannot write. It must not acquire leases in a loop without pauses.
func TestLeasesInAnotherStore(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		other := inmem.New(nil)
		defer other.Close()
		e.Put(ID(listType, "a"), wrapperspb.String("a"))
		ctx, stop := context.WithCancel(e.ctx)
		defer stop()
		const limit = 100
		var reconciles atomic.Int64
		m := controller.NewManager(e.Client, &controller.Options{Leases: other, Logger: slog.New(slog.DiscardHandler)})
		if err := m.Register(controller.NewController("lists", listType).WithReconciler(
			controller.ReconcileFunc(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
				if reconciles.Add(1) == limit {
					stop()
				}
				_, err := rt.Client.Write(ctx, &resourcepb.WriteRequest{Resource: resourceOf(itemType, "item", "a")})
				return err
			}))); err != nil {
			t.Fatal(err)
		}
		var running sync.WaitGroup
		running.Go(func() { _ = m.Run(ctx) })
		time.Sleep(time.Minute)
		stop()
		running.Wait()
		if n := reconciles.Load(); n < 2 || n > limit/2 {
			t.Errorf("%d reconciles in a minute, expected a few: each tenure ends with its first write", n)
		}
		if all := e.List(itemType); len(all) != 0 {
			t.Errorf("a write without a valid lease has stored %v", all)
		}
	})
}

// A process that loses its lease and can have it again waits for its old reconciles first.
func TestTenureBeginsAfterTheReconcilesOfTheLast(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		e.Put(ID(listType, "a"), wrapperspb.String("a"))
		release := make(chan struct{})
		var running, overlapping, lastEpoch atomic.Int64
		p := e.Manager(nil, controller.NewController("lists", listType).WithWorkers(2).
			WithReconciler(controller.ReconcileFunc(func(_ context.Context, rt controller.Runtime, _ controller.Request) error {
				if running.Add(1) > 1 {
					overlapping.Add(1)
				}
				defer running.Add(-1)
				if lastEpoch.Swap(rt.Epoch) == 0 {
					<-release // not the context: as a reconcile that computes
				}
				return nil
			})))
		e.Settle()
		p.Freeze()
		time.Sleep(time.Minute) // the lease ends
		p.Thaw()
		time.Sleep(5 * time.Minute)
		if lastEpoch.Load() != 1 {
			t.Errorf("epoch %d beside a reconcile of the first tenure", lastEpoch.Load())
		}
		close(release)
		time.Sleep(time.Minute)
		if lastEpoch.Load() < 2 || overlapping.Load() > 0 {
			t.Errorf("last epoch %d, %d reconciles beside another one", lastEpoch.Load(), overlapping.Load())
		}
	})
}

// A process that stops keeps its lease until its reconciles have written.
func TestLeaseLastsUntilTheLastWrite(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		e.Put(ID(listType, "a"), wrapperspb.String("a"))
		release := make(chan struct{})
		writeErr := make(chan error, 1)
		var others atomic.Int64
		lists := func(reconcile controller.ReconcileFunc) *controller.Controller {
			return controller.NewController("lists", listType).WithTimeout(time.Hour).WithReconciler(reconcile)
		}
		first := e.Manager(&controller.Options{Drain: time.Hour}, lists(func(ctx context.Context, rt controller.Runtime, _ controller.Request) error {
			<-release
			_, err := rt.Client.Write(ctx, &resourcepb.WriteRequest{Resource: resourceOf(itemType, "item", "a")})
			writeErr <- err
			return nil
		}))
		e.Settle()
		e.Manager(nil, lists(func(context.Context, controller.Runtime, controller.Request) error {
			others.Add(1)
			return nil
		}))
		stopped := make(chan struct{})
		go func() {
			first.Stop()
			close(stopped)
		}()
		time.Sleep(2 * time.Minute)
		if others.Load() > 0 {
			t.Error("another process reconciles beside the last reconcile of the first one")
		}
		close(release)
		if err := <-writeErr; err != nil {
			t.Errorf("the last write of a process that stops: %v", err)
		}
		<-stopped
		time.Sleep(time.Second)
		if others.Load() == 0 {
			t.Error("no process has taken over a lease that was freed")
		}
	})
}
