package controllertest_test

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/controllertest"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
)

// shards is large, so that each of three processes has some. The probability of an idle process is 1 in 100 million.
const shards = 48

// reconciledBy records the last reconcile of each set: its process and the value.
type reconciledBy struct {
	mu   sync.Mutex
	last map[string]string
}

func (r *reconciledBy) controller(process string) *controller.Controller {
	return controller.NewController("sets", setType).WithPlacement(controller.PlacementSharded(shards)).WithReconciler(
		controller.Typed(func(_ context.Context, _ controller.Runtime, req controller.TypedRequest[*wrapperspb.UInt32Value]) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.last[req.ID.Name] = fmt.Sprintf("%s %d", process, req.Object.Data.Value)
			return nil
		}))
}

// check checks that every set was reconciled at a value, and returns the number of sets by process.
func (r *reconciledBy) check(t *testing.T, n int, value uint32) map[string]int {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	processes := map[string]int{}
	for i := range n {
		var process string
		var last uint32
		if _, _ = fmt.Sscanf(r.last[fmt.Sprintf("set-%d", i)], "%s %d", &process, &last); last != value {
			t.Errorf("set-%d: last reconciled by %q at %d, expected %d", i, process, last, value)
		}
		processes[process]++
	}
	return processes
}

func TestShardsFollowTheLiveProcesses(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, nil, func(e *controllertest.Env) {
		const n = 300
		r := &reconciledBy{last: map[string]string{}}
		write := func(value uint32) {
			for i := range n {
				e.Put(controllertest.ID(setType, "set-%d", i), wrapperspb.UInt32(value))
			}
		}
		write(1)
		first := e.Manager(nil, r.controller("first"))
		time.Sleep(time.Minute)
		if by := r.check(t, n, 1); by["first"] != n {
			t.Errorf("sets by process: %v, expected all at the only one", by)
		}
		e.Manager(nil, r.controller("second"))
		e.Manager(nil, r.controller("third"))
		time.Sleep(3 * time.Minute)
		write(2)
		time.Sleep(time.Second)
		if by := r.check(t, n, 2); by["first"] == 0 || by["second"] == 0 || by["third"] == 0 {
			t.Errorf("sets by process: %v, expected some at each", by)
		}
		first.Kill()
		write(3)
		time.Sleep(3 * time.Minute)
		if by := r.check(t, n, 3); by["first"] != 0 {
			t.Errorf("sets by process: %v, expected none at the killed one", by)
		}
	})
}

// A process that neither takes leases nor dies is the wanted holder of some shards. The other processes serve them, also after the death of one.
func TestWantedProcessTakesNoLease(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, nil, func(e *controllertest.Env) {
		const n = 300
		idle := recordIdleProcess(t, e, "sets")
		defer idle()
		r := &reconciledBy{last: map[string]string{}}
		first := e.Manager(nil, r.controller("first"))
		time.Sleep(3 * time.Minute)
		e.Manager(nil, r.controller("second"))
		first.Kill()
		for i := range n {
			e.Put(controllertest.ID(setType, "set-%d", i), wrapperspb.UInt32(1))
		}
		time.Sleep(3 * time.Minute)
		r.check(t, n, 1)
	})
}

// recordIdleProcess stores the record of a live process that runs a controller and takes no lease.
func recordIdleProcess(t *testing.T, e *controllertest.Env, name string) (stop func()) {
	t.Helper()
	tenancy := &resourcepb.Tenancy{Partition: "default", Namespace: "default"}
	keeper, err := lease.NewKeeper(e.Backend, tenancy)
	if err != nil {
		t.Fatal(err)
	}
	session, err := keeper.Grant(t.Context(), "idle", time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal([]controller.Status{{Controller: name}})
	if err != nil {
		t.Fatal(err)
	}
	data, err := anypb.New(wrapperspb.Bytes(encoded))
	if err != nil {
		t.Fatal(err)
	}
	_, err = e.Backend.WriteCAS(t.Context(), &resourcepb.Resource{
		Id:    &resourcepb.ID{Type: controller.ProcessType, Tenancy: tenancy, Name: "idle", Uid: "idle"},
		Owner: session.Owner(), Generation: "1", Data: data,
	})
	if err != nil {
		t.Fatal(err)
	}
	return keeper.Close
}
