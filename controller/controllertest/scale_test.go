package controllertest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/controllertest"
	"github.com/ashlar-dev/storage/controller/dependency"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

var (
	setType = &resourcepb.Type{Group: "shop", GroupVersion: "v1", Kind: "ReplicaSet"}
	podType = &resourcepb.Type{Group: "shop", GroupVersion: "v1", Kind: "Pod"}

	sets = controller.NewKind[*wrapperspb.UInt32Value](setType)
	pods = controller.NewKind[*wrapperspb.StringValue](podType)
)

// replicaSets returns a controller that keeps the number of pods that a set names.
func replicaSets() *controller.Controller {
	return controller.NewController("replica-sets", setType).
		WithWatch(podType, dependency.MapOwner).
		WithReconciler(controller.Typed(scale)).
		WithWorkers(4)
}

func scale(ctx context.Context, rt controller.Runtime, req controller.TypedRequest[*wrapperspb.UInt32Value]) error {
	set := req.Object
	if set == nil || controller.Deleting(set) {
		return nil // the reaper deletes its pods
	}
	missing := map[string]bool{}
	for i := range set.Data.Value {
		missing[fmt.Sprintf("%s-%d", set.ID.Name, i)] = true
	}
	owned, err := pods.Owned(rt, set.ID)
	if err != nil {
		return err
	}
	for _, pod := range owned {
		if !missing[pod.ID.Name] {
			if err := pods.Delete(ctx, rt, pod.ID); err != nil {
				return err
			}
		}
		delete(missing, pod.ID.Name)
	}
	for name := range missing {
		pod := &typed.Object[*wrapperspb.StringValue]{ID: pods.ID(set.ID.Tenancy, name), Owner: set.ID, Data: wrapperspb.String("running")}
		if _, err := pods.Apply(ctx, rt, pod); err != nil {
			return err
		}
	}
	return sets.SetStatus(ctx, rt, set, "replica-sets", controller.True("Scaled", "AsWanted"))
}

func TestScale(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, nil, func(e *controllertest.Env) {
		web := controllertest.ID(setType, "web")
		e.Put(web, wrapperspb.UInt32(3))
		first := e.Manager(&controller.Options{Name: "first"}, replicaSets())
		e.Settle()
		if n := len(e.List(podType)); n != 3 {
			t.Fatalf("%d pods, expected 3", n)
		}
		e.Put(web, wrapperspb.UInt32(1))
		e.Settle()
		if n := len(e.List(podType)); n != 1 {
			t.Fatalf("%d pods, expected 1", n)
		}
		e.Delete(e.List(podType)[0].GetId())
		e.Settle()
		if n := len(e.List(podType)); n != 1 {
			t.Fatalf("%d pods, expected 1", n)
		}
		if s := e.List(setType)[0]; s.GetStatus()["replica-sets"].GetObservedGeneration() != s.GetGeneration() {
			t.Fatalf("status %v, expected the generation %s", s.GetStatus(), s.GetGeneration())
		}
		second := e.Manager(&controller.Options{Name: "second"}, replicaSets())
		first.Kill()
		e.Put(web, wrapperspb.UInt32(5))
		e.Settle()
		if n := len(e.List(podType)); n != 1 {
			t.Fatalf("%d pods before the lease has ended, expected 1", n)
		}
		time.Sleep(time.Minute)
		if n := len(e.List(podType)); n != 5 {
			t.Fatalf("%d pods, expected 5", n)
		}
		second.Stop()
		e.Delete(web)
		time.Sleep(time.Minute)
		if n := len(e.List(podType)); n != 0 {
			t.Fatalf("%d pods, expected none", n)
		}
	})
}
