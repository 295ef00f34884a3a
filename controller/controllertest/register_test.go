package controllertest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/resourcepb"
)

func nothing(context.Context, controller.Runtime, controller.Request) error { return nil }

// Register refuses controllers that can never have their leases.
func TestRegisterChecksTheNamesOfLeases(t *testing.T) {
	t.Parallel()
	backend := inmem.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	lists := func(name string) *controller.Controller {
		return controller.NewController(name, listType).WithReconciler(controller.ReconcileFunc(nothing))
	}
	for name, all := range map[string][]*controller.Controller{
		"too long":  {lists(strings.Repeat("x", 250))},
		"not UTF-8": {lists("a\xff")},
		"shared":    {lists("a-0-of-2"), lists("a").WithPlacement(controller.PlacementSharded(2))},
	} {
		m := controller.NewManager(nil, &controller.Options{Leases: backend})
		if err := m.Register(all...); err == nil {
			t.Errorf("%s: Register succeeded", name)
		}
	}
}

// Register refuses a lifetime of leases that package lease would raise, which includes a negative one.
func TestRegisterChecksTheLifetimeOfLeases(t *testing.T) {
	t.Parallel()
	backend := inmem.New(nil)
	t.Cleanup(func() { _ = backend.Close() })
	for ttl, want := range map[time.Duration]string{
		0: "", time.Second: "", time.Second - 1: "Options.LeaseTTL is 999.999999ms, expected at least 1s", -time.Second: "Options.LeaseTTL is -1s",
	} {
		for placement, want := range map[controller.Placement]string{controller.PlacementSingleton: want, controller.PlacementEachServer: ""} {
			m := controller.NewManager(nil, &controller.Options{Leases: backend, LeaseTTL: ttl})
			err := m.Register(controller.NewController("lists", listType).WithPlacement(placement).WithReconciler(controller.ReconcileFunc(nothing)))
			if got := fmt.Sprint(err); (err != nil) != (want != "") || !strings.Contains(got, want) && err != nil {
				t.Errorf("%v, %v: Register returned %v, expected %q", ttl, placement, err, want)
			}
		}
	}
}

// The service adds a missing namespace to a tenancy, and so does WithTenancy.
func TestTenancyIsCompleted(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		e.Put(ID(listType, "a"), wrapperspb.String("a"))
		var reconciles atomic.Int64
		e.Manager(nil, controller.NewController("lists", listType).WithTenancy(&resourcepb.Tenancy{Partition: "default"}).
			WithReconciler(controller.ReconcileFunc(func(context.Context, controller.Runtime, controller.Request) error {
				reconciles.Add(1)
				return nil
			})))
		e.Settle()
		if reconciles.Load() == 0 {
			t.Error("the list was not reconciled")
		}
	})
}

// initializer is a function that initializes a controller.
type initializer func() error

func (i initializer) Initialize(context.Context, controller.Runtime) error { return i() }

// A process whose initializer fails gives shards to another process.
func TestShardsLeaveAFailingInitializer(t *testing.T) {
	t.Parallel()
	Run(t, nil, func(e *Env) {
		for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
			e.Put(ID(listType, "%s", name), wrapperspb.String("a"))
		}
		var done record
		sharded := func(err error) *controller.Controller {
			return controller.NewController("lists", listType).WithPlacement(controller.PlacementSharded(16)).
				WithInitializer(initializer(func() error { return err })).
				WithReconciler(controller.ReconcileFunc(func(_ context.Context, _ controller.Runtime, req controller.Request) error {
					done.add(req.ID.GetName())
					return nil
				}))
		}
		e.Manager(nil, sharded(errors.New("no permission")))
		time.Sleep(time.Minute)
		second := e.Manager(nil, sharded(nil))
		time.Sleep(5 * time.Minute)
		if done.len() == 0 {
			t.Error("the second process has no shard")
		}
		second.Stop()
	})
}
