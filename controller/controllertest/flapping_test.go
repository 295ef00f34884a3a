package controllertest_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/controllertest"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

var markType = &resourcepb.Type{Group: "test", GroupVersion: "v1", Kind: "Mark"}

// markSets returns a controller that marks each set with the epoch, the process and the value. Its writes have no condition, and it ignores the end of
// its context: only the fence prevents a write after its lease was lost.
func markSets(process string) *controller.Controller {
	return controller.NewController("sets", setType).WithPlacement(controller.PlacementSharded(6)).WithReconciler(
		controller.Typed(func(ctx context.Context, rt controller.Runtime, req controller.TypedRequest[*wrapperspb.UInt32Value]) error {
			time.Sleep(rand.N(time.Second))
			res, err := typed.Messages[*wrapperspb.StringValue]().Resource(&typed.Object[*wrapperspb.StringValue]{
				ID: controllertest.ID(markType, "%s", req.ID.GetName()), Data: wrapperspb.String(fmt.Sprintf("%d %s %d", rt.Epoch, process, req.Object.Data.Value)),
			})
			if err == nil {
				_, err = rt.Client.Write(context.WithoutCancel(ctx), &resourcepb.WriteRequest{Resource: res})
			}
			return err
		}))
}

// mark is the content of a mark.
type mark struct {
	epoch   int64
	process string
	value   uint32
}

// watchMarks reports a mark that has a lower epoch than the mark of its set before, or the epoch of another process. It returns the latest marks.
func watchMarks(e *controllertest.Env) (latest func() map[string]mark) {
	t := e.T
	w, err := e.Backend.WatchList(t.Context(), storage.UnversionedTypeFrom(markType), &resourcepb.Tenancy{Partition: "default", Namespace: "default"}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	all := map[string]mark{}
	return func() map[string]mark {
		ctx, cancel := context.WithTimeout(t.Context(), time.Nanosecond) // in a bubble it ends when everything else waits
		defer cancel()
		for {
			ev, err := w.Next(ctx)
			if err != nil {
				return maps.Clone(all)
			}
			res := ev.GetUpsert().GetResource()
			if res == nil {
				continue
			}
			o, err := typed.Messages[*wrapperspb.StringValue]().Object(res)
			if err != nil {
				t.Fatal(err)
			}
			var next mark
			if _, err := fmt.Sscan(o.Data.Value, &next.epoch, &next.process, &next.value); err != nil {
				t.Fatal(err)
			}
			before := all[o.ID.GetName()]
			if next.epoch < before.epoch || next.epoch == before.epoch && next.process != before.process {
				t.Errorf("%s is marked by %s in epoch %d after %s in epoch %d", o.ID.GetName(), next.process, next.epoch, before.process, before.epoch)
			}
			all[o.ID.GetName()] = next
		}
	}
}

// Processes come and go, and are paused, in short succession. At no time do writes of two holders of a shard take effect beside each other. When the
// processes stay, the shards do too.
func TestProcessesThatComeAndGo(t *testing.T) {
	t.Parallel()
	controllertest.Run(t, nil, func(e *controllertest.Env) {
		const n = 12
		value := uint32(0)
		writeAll := func() {
			value++
			for i := range n {
				e.Put(controllertest.ID(setType, "set-%d", i), wrapperspb.UInt32(value))
			}
		}
		latest := watchMarks(e)
		e.Manager(&controller.Options{Name: "stays"}, markSets("stays"))
		const ttl = 15 * time.Second
		for i := range 12 {
			name := fmt.Sprintf("flaps-%d", i)
			p := e.Manager(&controller.Options{Name: name}, markSets(name))
			writeAll()
			time.Sleep(rand.N(4 * ttl))
			if i%4 != 0 {
				p.Freeze()
				writeAll()
				time.Sleep(rand.N(8 * ttl)) // another process takes a shard over after two or three times the time to live
				p.Thaw()
				writeAll()
				time.Sleep(rand.N(2 * ttl))
			}
			if i%2 == 0 {
				p.Kill()
			} else {
				p.Stop()
			}
			latest()
		}
		e.Manager(&controller.Options{Name: "joins"}, markSets("joins"))
		time.Sleep(5 * time.Minute)
		writeAll()
		time.Sleep(time.Minute)
		settled := latest()
		processes := map[string]bool{}
		for i := range n {
			name := fmt.Sprintf("set-%d", i)
			if settled[name].value != value {
				t.Errorf("%s is marked with %+v, expected the value %d", name, settled[name], value)
			}
			processes[settled[name].process] = true
		}
		time.Sleep(10 * time.Minute)
		writeAll()
		time.Sleep(time.Minute)
		for name, m := range latest() {
			if m.epoch != settled[name].epoch || m.value != value {
				t.Errorf("%s is marked with %+v after %+v, although no process has come or gone since", name, m, settled[name])
			}
			delete(processes, m.process)
		}
		if len(processes) > 0 {
			t.Errorf("processes without a set: %v", processes)
		}
	})
}
