package controller

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/queue"
	"github.com/ashlar-dev/storage/lease"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// runner runs one controller: it maps changes to requests, competes for the leases of the controller, and runs a task for each lease it holds.
type runner struct {
	controller *Controller
	client     resourcegrpc.ResourceServiceClient
	cache      *cache
	managed    *informer
	leases     storage.Backend
	opts       Options
	log        *slog.Logger
	counts     counts

	mu    sync.Mutex
	slots []slot // by the number of the lease
}

// slot is the place of a task.
type slot struct {
	task  *task // nil while another process holds the lease
	epoch int64
	since time.Time
}

// lockTenancy is the tenancy of the leases.
var lockTenancy = &resourcepb.Tenancy{Partition: "default", Namespace: "default"}

// lockName returns the name of a lease of a controller.
func lockName(controller string, slot, shards int) string {
	if shards <= 1 {
		return "controller-" + controller
	}
	return fmt.Sprintf("controller-%s-%d-of-%d", controller, slot, shards)
}

// run runs the controller until ctx ends, and then for at most Options.Drain until the running reconciles have returned.
func (r *runner) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	follow := func(m *mapping) {
		m.runtime, m.add, m.resync, m.log = r.mapRuntime, r.add, r.resync, r.log
		view, follower := m.informer.copy.BorrowAndFollow()
		view.Return()
		running.Go(func() { m.run(ctx, follower) })
	}
	follow(&mapping{informer: r.managed})
	for _, w := range r.controller.watches {
		if w.mapper != nil {
			follow(&mapping{informer: r.cache.informers[storage.UnversionedTypeFrom(w.typ)], mapper: w.mapper})
		}
	}
	for _, s := range r.controller.sources {
		running.Go(func() { r.runSource(ctx, s) })
	}
	for i := range r.slots { // after the followers: a task requests what it finds, and then gets all later changes
		running.Go(func() { r.runSlot(ctx, i) })
	}
}

// mapRuntime returns the runtime of mappers. Their client has no fence.
func (r *runner) mapRuntime() Runtime {
	return Runtime{Client: r.client, Cache: r.cache, Logger: Logger{r.log}}
}

// runSource maps the events of a source until ctx ends or the source is closed.
func (r *runner) runSource(ctx context.Context, s customWatch) {
	for {
		var event Event
		select {
		case <-ctx.Done():
			return
		case next, open := <-s.source.Source:
			if !open {
				return
			}
			event = next
		}
		for pause := minMapPause; ctx.Err() == nil; pause = min(2*pause, maxMapPause) {
			var requests []Request
			err := protect(func() (err error) {
				requests, err = s.mapper(ctx, r.mapRuntime(), event)
				return err
			})
			for _, request := range requests {
				r.add(request.ID)
			}
			if err == nil {
				break
			}
			r.log.ErrorContext(ctx, "the mapper of a custom watch failed; retrying", "error", err, "pause", pause)
			sleep(ctx, pause)
		}
	}
}

// add requests a reconcile, if this process holds the lease for the resource.
func (r *runner) add(id *resourcepb.ID) {
	k := key.Of(id)
	if storage.UnversionedTypeFrom(id.GetType()) != storage.UnversionedTypeFrom(r.controller.typ) {
		r.counts.ignore()
		return
	}
	if !covers(r.controller.tenancy, k) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if t := r.slots[r.slotOf(k)].task; t != nil {
		t.queue.Add(k)
	}
}

// resync requests all managed resources.
func (r *runner) resync() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range r.slots {
		if s.task != nil {
			s.task.enqueueAll(r.owns(i))
		}
	}
}

// slotOf returns the number of the lease for a resource.
func (r *runner) slotOf(k key.Key) int {
	if len(r.slots) == 1 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write(k.Bytes())
	return int(h.Sum32() % uint32(len(r.slots)))
}

// owns returns a function that reports whether a lease is the one for a resource of the controller.
func (r *runner) owns(slot int) func(key.Key) bool {
	return func(k key.Key) bool { return r.slotOf(k) == slot && covers(r.controller.tenancy, k) }
}

// runSlot runs the tasks of one lease until ctx ends.
func (r *runner) runSlot(ctx context.Context, number int) {
	if r.controller.placement.shards == 0 {
		r.serve(ctx, number, nil)
		return
	}
	name := lockName(r.controller.name, number, r.controller.placement.shards)
	elector, err := lease.NewElector(r.leases, lockTenancy, name, &lease.Options{TTL: r.opts.LeaseTTL, Holder: r.opts.Name})
	if err != nil {
		r.log.ErrorContext(ctx, "the controller cannot run", "error", err)
		return
	}
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, 5*time.Second) {
		tenure, err := elector.Campaign(ctx)
		switch {
		case err == nil:
			pause = 50 * time.Millisecond
			r.serve(ctx, number, tenure)
			r.resign(tenure)
		case ctx.Err() == nil:
			r.log.ErrorContext(ctx, "cannot compete for the lease of the controller; retrying", "lease", name, "error", err, "pause", pause)
			sleep(ctx, pause)
		}
	}
}

// resign frees a lease, so that another process need not wait. The workers of its task have returned.
func (r *runner) resign(tenure *lease.Tenure) {
	ctx, cancel := context.WithTimeout(context.Background(), r.opts.LeaseTTL)
	defer cancel()
	if err := tenure.Resign(ctx); err != nil {
		r.log.WarnContext(ctx, "the lease is not freed; it ends by itself", "error", err)
	}
}

// serve runs a task until ctx or the tenure, nil for none, ends. It returns when all workers have returned.
func (r *runner) serve(ctx context.Context, number int, tenure *lease.Tenure) {
	workCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	t := &task{
		controller: r.controller, client: r.client, managed: r.managed, cache: r.cache, log: r.log, counts: &r.counts,
		queue:  queue.New[key.Key](queue.Options{BaseDelay: r.controller.baseBackoff, MaxDelay: r.controller.maxBackoff}),
		doubts: doubts{informers: r.cache.informers}, lost: func() {},
	}
	ended := ctx.Done()
	prepareCtx, stopPreparing := context.WithCancel(ctx)
	defer stopPreparing()
	if tenure != nil {
		t.epoch, t.lost = tenure.Epoch(), cancel
		if !r.controller.unfenced {
			t.fence = encodeFence(tenure.Fence())
		}
		lost := context.AfterFunc(workCtx, stopPreparing)
		defer lost()
		watching.Go(func() {
			select {
			case <-tenure.Done():
				cancel()
			case <-workCtx.Done():
			}
		})
		if err := r.awaitBarriers(prepareCtx); err != nil {
			return // the tenure or the manager has ended
		}
		r.log.InfoContext(ctx, "the controller starts", "epoch", t.epoch)
	}
	t.initialize(prepareCtx)
	if prepareCtx.Err() != nil {
		return
	}
	r.setTask(number, t)
	t.enqueueAll(r.owns(number))
	working := make(chan struct{})
	go func() {
		t.work(workCtx)
		close(working)
	}()
	select {
	case <-ended:
	case <-workCtx.Done():
	}
	r.setTask(number, nil)
	t.queue.Close()
	drain := time.AfterFunc(r.opts.Drain, cancel)
	defer drain.Stop()
	<-working
}

// awaitBarriers waits until all copies include the writes of earlier tenures: these were acknowledged, or are impossible, since this tenure has
// begun.
func (r *runner) awaitBarriers(ctx context.Context) error {
	var waiting sync.WaitGroup
	var mu sync.Mutex
	var all error
	for _, i := range r.cache.informers {
		waiting.Go(func() {
			err := i.barrier(ctx)
			mu.Lock()
			defer mu.Unlock()
			all = errors.Join(all, err)
		})
	}
	waiting.Wait()
	return all
}

func (r *runner) setTask(number int, t *task) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.slots[number] = slot{task: t}
	if t != nil {
		r.slots[number].epoch, r.slots[number].since = t.epoch, time.Now()
	}
}

// encodeFence returns the metadata of a fence: the id and the version that a write checks.
func encodeFence(op storage.Op) string {
	encoded, err := proto.Marshal(&resourcepb.Resource{Id: op.Check, Version: op.Version})
	if err != nil {
		return "invalid" // the id of a lease is valid; the service rejects this text
	}
	return string(encoded)
}
