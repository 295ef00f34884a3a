package controllertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/controller/dependency"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/typed"
)

func checkPriming(w *world) {
	const n = 20
	for i := range n {
		w.put(listType, fmt.Sprintf("list-%d", i), "")
		w.put(itemType, fmt.Sprintf("item-%d", i), fmt.Sprintf("list-%d", i))
	}
	var done record
	w.start(w.watchItems(w.controller(func(_ context.Context, rt controller.Runtime, req controller.Request) error {
		all, err := items.List(rt, controller.IDIndex, ID(itemType, ""))
		if len(all) != n && done.add(req.ID.GetName()) == 1 {
			w.fail("the first reconcile of %s finds %d items in the cache, expected %d", req.ID.GetName(), len(all), n)
		}
		done.add(req.ID.GetName())
		return err
	})))
	w.eventually("all lists are reconciled", func() bool { return done.len() == n })
}

func checkDeletionWhileInterrupted(w *world) {
	for _, compacted := range []bool{false, true} {
		name := fmt.Sprintf("a-%t", compacted)
		w.put(listType, name, "")
		w.put(itemType, name, name)
		var sawItem, sawNone atomic.Bool
		client := w.Env.Client
		if w.parts.client != nil {
			client = w.parts.client(client)
		}
		l := newLink(client)
		p := w.startWithClient(l, w.watchItems(w.controller(func(_ context.Context, rt controller.Runtime, req controller.Request) error {
			item, err := items.Get(rt, ID(itemType, "%s", name))
			if req.ID.GetName() == name {
				sawItem.Store(sawItem.Load() || item != nil)
				sawNone.Store(item == nil)
			}
			return err
		})))
		w.eventually("the item is cached", sawItem.Load)
		l.cut()
		w.Delete(ID(itemType, "%s", name))
		l.mend(compacted)
		w.eventually("the list is reconciled without the item that was deleted during the interruption", sawNone.Load)
		p.Stop()
	}
}

func checkEveryState(w *world) {
	for _, name := range []string{"hold", "a", "b", "c"} {
		w.put(listType, name, "")
	}
	w.put(itemType, "item", "a")
	var done record
	var release = make(chan struct{})
	var holding atomic.Bool
	w.start(w.watchItems(w.controller(func(ctx context.Context, _ controller.Runtime, req controller.Request) error {
		if req.ID.GetName() == "hold" && done.get("hold") == 1 {
			holding.Store(true)
			<-release
		}
		done.add(req.ID.GetName())
		return nil
	})))
	w.eventually("all lists are reconciled", func() bool { return done.len() == 4 })
	w.put(listType, "hold", "again")
	w.eventually("the worker is busy", holding.Load)
	before := map[string]int{}
	for _, name := range []string{"a", "b", "c"} {
		before[name] = done.get(name)
	}
	w.put(itemType, "item", "b")
	w.put(itemType, "item", "c")
	close(release)
	for _, name := range []string{"a", "b", "c"} {
		w.eventually("list "+name+" is reconciled, which the item has referred to", func() bool { return done.get(name) > before[name] })
	}
}

func checkMovedReference(w *world) {
	w.put(listType, "from", "")
	w.put(listType, "to", "")
	w.put(itemType, "item", "from")
	var done record
	w.start(w.watchItems(w.controller(func(_ context.Context, _ controller.Runtime, req controller.Request) error {
		done.add(req.ID.GetName())
		return nil
	})))
	w.eventually("both lists are reconciled", func() bool { return done.len() == 2 })
	from, to := done.get("from"), done.get("to")
	w.put(itemType, "item", "to")
	w.eventually("the list that has got the item is reconciled", func() bool { return done.get("to") > to })
	w.eventually("the list that has lost the item is reconciled", func() bool { return done.get("from") > from })
}

// checkBackoff and checkRequeue compare times, which is exact in a bubble.
func checkBackoff(w *world) {
	w.put(listType, "a", "")
	times := make(chan time.Time, 100)
	w.start(w.controller(func(context.Context, controller.Runtime, controller.Request) error {
		times <- time.Now()
		return errors.New("always")
	}))
	last := <-times
	for n, want := 0, 5*time.Millisecond; n < 20; n++ {
		next := <-times
		if d := next.Sub(last); d < want*4/5 || d > want {
			w.fail("delay %v after failure %d, expected %v less up to a fifth", d, n+1, want)
		}
		last, want = next, min(2*want, 1000*time.Second)
	}
}

func checkRequeue(w *world) {
	w.put(listType, "a", "")
	times := make(chan time.Time, 100)
	runs := 0
	w.start(w.controller(func(context.Context, controller.Runtime, controller.Request) error {
		times <- time.Now()
		if runs++; runs == 10 {
			return controller.RequeueAfter(time.Hour)
		}
		return errors.New("otherwise")
	}))
	var all []time.Time
	for range 12 {
		all = append(all, <-times)
	}
	if d := all[10].Sub(all[9]); d != time.Hour {
		w.fail("RequeueAfter delays by %v, expected an hour", d)
	}
	if d := all[11].Sub(all[10]); d > 5*time.Millisecond {
		w.fail("the first failure after RequeueAfter delays by %v, expected 5ms or less", d)
	}
}

func checkPanicAndTimeout(w *world) {
	w.put(listType, "a", "")
	var done record
	w.start(w.controller(func(ctx context.Context, _ controller.Runtime, _ controller.Request) error {
		switch done.add("runs") {
		case 1:
			panic("the first run")
		case 2:
			<-ctx.Done()
			return ctx.Err()
		}
		done.add("ok")
		return nil
	}).WithTimeout(50 * time.Millisecond))
	w.eventually("the reconcile succeeds after a panic and a timeout", func() bool { return done.get("ok") > 0 })
}

// checkFence freezes a process just before a write. Another process takes over the lease, and the write continues.
func checkFence(w *world) {
	w.put(listType, "a", "")
	var results sync.Map
	var epochs [2]atomic.Int64
	var frozen, thaw = make(chan struct{}), make(chan struct{})
	lists := func(process int) *controller.Controller {
		return w.controller(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
			if epochs[process].Swap(rt.Epoch) == 0 && process == 0 {
				close(frozen)
				<-thaw // not ctx: as a paused process
			}
			_, err := rt.Client.Write(context.WithoutCancel(ctx), &resourcepb.WriteRequest{Resource: resourceOf(itemType, "written-by", fmt.Sprint(process))})
			results.LoadOrStore(process, fmt.Sprintf("%v: %v", status.Code(err), err))
			if err == nil {
				results.Store(fmt.Sprintf("success-%d", process), true)
			}
			return err
		}).WithPlacement(controller.PlacementSingleton)
	}
	first := w.start(lists(0))
	<-frozen
	first.Freeze()
	w.start(lists(1))
	w.eventually("another process takes over", func() bool { _, ok := results.Load("success-1"); return ok })
	close(thaw)
	first.Thaw()
	if !w.eventually("the write of the paused process returns", func() bool { _, ok := results.Load(0); return ok }) {
		return
	}
	if _, ok := results.Load("success-0"); ok {
		w.fail("a write of a process that has lost the lease succeeded")
	}
	if result, _ := results.Load(0); !strings.HasPrefix(result.(string), codes.Aborted.String()) {
		w.fail("the write of a process that has lost the lease: %v, expected Aborted", result)
	}
	if all := w.List(itemType); len(all) != 1 || text(all[0]) != "1" {
		w.fail("the store has %v, expected the write of the second process", all)
	}
	if epochs[1].Load() <= epochs[0].Load() {
		w.fail("epoch %d after %d, expected a higher one", epochs[1].Load(), epochs[0].Load())
	}
}

// resourceOf returns a resource to write.
func resourceOf(typ *resourcepb.Type, name, payload string) *resourcepb.Resource {
	o := &typed.Object[*wrapperspb.StringValue]{ID: ID(typ, "%s", name), Data: wrapperspb.String(payload)}
	res, err := typed.Messages[*wrapperspb.StringValue]().Resource(o)
	if err != nil {
		panic(err)
	}
	return res
}

func checkStarvation(w *world) {
	const n = 200
	for i := range n {
		w.put(listType, fmt.Sprintf("list-%d", i), "")
	}
	var done record
	w.start(w.controller(func(_ context.Context, _ controller.Runtime, req controller.Request) error {
		time.Sleep(10 * time.Millisecond)
		done.add(req.ID.GetName())
		return nil
	}))
	end := time.Now().Add(15 * time.Second) // 5 s, and every second run of 10 ms
	for i := 0; done.len() < n+3 && time.Now().Before(end); i++ {
		w.put(listType, fmt.Sprintf("busy-%d", i%3), fmt.Sprint(i))
		time.Sleep(3 * time.Millisecond)
	}
	if done.len() < n+3 {
		w.fail("%d of %d resources are reconciled beside constant changes", done.len(), n+3)
	}
}

func checkGoroutines(w *world) {
	open, err := w.Backend.WatchList(w.ctx, storage.UnversionedTypeFrom(listType), ID(listType, "x").GetTenancy(), "") // starts the backend's goroutines
	if err != nil {
		w.fail("watch: %v", err)
		return
	}
	defer open.Close()
	w.put(listType, "a", "")
	w.put(itemType, "a", "a")
	var done record
	label := fmt.Sprintf("controllertest-%p", w)
	var p *Process
	pprof.Do(context.Background(), pprof.Labels("controllertest", label), func(context.Context) {
		p = w.start(w.watchItems(w.controller(func(context.Context, controller.Runtime, controller.Request) error {
			done.add("a")
			return errors.New("retry")
		}).WithPlacement(controller.PlacementSingleton)))
	})
	w.eventually("the list is reconciled", func() bool { return done.get("a") > 0 })
	p.Stop()
	var profile bytes.Buffer
	w.eventually("no goroutine of the manager is left", func() bool {
		profile.Reset()
		_ = pprof.Lookup("goroutine").WriteTo(&profile, 1)
		return !strings.Contains(profile.String(), label)
	})
}

// checkReadYourWrites uses names that do not reveal an earlier write, so only the cache prevents too many items.
func checkReadYourWrites(w *world) {
	w.put(listType, "a", "")
	var names atomic.Int64
	var done record
	client := w.Env.Client
	if w.parts.client != nil {
		client = w.parts.client(client)
	}
	const n = 20
	c := w.controller(func(ctx context.Context, rt controller.Runtime, req controller.Request) error {
		list, err := rt.Cache.Get(listType, controller.IDIndex, req.ID)
		if list == nil || err != nil {
			return err
		}
		owned, err := items.Owned(rt, list.GetId())
		if err != nil || len(owned) == n || names.Load() > 2*n {
			done.add("end")
			return err
		}
		o := &typed.Object[*wrapperspb.StringValue]{ID: ID(itemType, "item-%d", names.Add(1)), Owner: proto.CloneOf(list.GetId()), Data: wrapperspb.String("a")}
		if _, err := items.Apply(ctx, rt, o); err != nil {
			return err
		}
		return controller.RequeueNow()
	}).WithWatch(itemType, dependency.MapOwner)
	w.startWithClient(client, c)
	w.eventually("the list has all items", func() bool { return done.get("end") > 0 })
	if all := w.List(itemType); len(all) != n {
		w.fail("%d items were created, expected %d", len(all), n)
	}
}
