package controller

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"sync"
	"sync/atomic"
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
	controller      *Controller
	client          resourcegrpc.ResourceServiceClient
	cache           *cache
	managedInformer *informer
	leases          storage.Backend
	opts            Options
	log             *slog.Logger
	counts          counts
	process         *process // nil if no controller of the manager has a lease

	movingCh chan struct{} // full while a shard is given up
	mu       sync.Mutex
	slots    []slot // by the number of the lease
}

// slot is the place of a task.
type slot struct {
	task  *task // nil while another process holds the lease
	epoch int64
	since time.Time
}

// lockName returns the name of a lease of a controller.
func lockName(controller string, slot, shards int) string {
	if shards <= 1 {
		return "controller-" + controller
	}
	return fmt.Sprintf("controller-%s-%d-of-%d", controller, slot, shards)
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
		t.queue.Add(nameOf(k))
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

// resign frees a lease, so that another process need not wait. The workers of its task have returned.
func (r *runner) resign(tenure *lease.Tenure) {
	ctx, cancel := context.WithTimeout(context.Background(), r.opts.LeaseTTL)
	defer cancel()
	if err := tenure.Resign(ctx); err != nil {
		r.log.WarnContext(ctx, "the lease is not freed; it ends by itself", "error", err)
	}
}

// errRefused reports that the service has refused the fence of a tenure.
var errRefused = errors.New("the service refuses writes with the lease")

// serve runs a task until ctx or the tenure, nil for none, ends, or until yieldCh is closed. It returns when all workers have returned. It returns
// an error if the task could not begin, and errRefused if the service has refused the fence of the tenure.
func (r *runner) serve(ctx context.Context, number int, tenure *lease.Tenure, yieldCh <-chan struct{}) (err error) {
	var isRefused atomic.Bool
	workCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	defer func() {
		if isRefused.Load() {
			err = errRefused
		}
	}()
	t := &task{
		controller: r.controller, client: r.client, managedInformer: r.managedInformer, cache: r.cache, log: r.log, counts: &r.counts,
		queue:     queue.New[managedName](queue.Options{BaseDelay: r.controller.baseBackoff, MaxDelay: r.controller.maxBackoff}),
		uncertain: uncertainWrites{informers: r.cache.informers}, endTenure: func() {},
	}
	prepareCtx, stopPreparing := context.WithCancel(ctx)
	defer stopPreparing()
	if tenure != nil {
		t.epoch, t.endTenure = tenure.Epoch(), func() { isRefused.Store(true); cancel() }
		if !r.controller.noFence {
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
		watching.Go(func() {
			select {
			case <-yieldCh: // an initializer that fails must not keep the lease
				stopPreparing()
			case <-prepareCtx.Done():
			}
		})
		switch err := r.awaitBarriers(prepareCtx); {
		case prepareCtx.Err() != nil: // the tenure or the manager has ended, or another process should hold the lease
			return nil
		case err != nil:
			return fmt.Errorf("the cache cannot be brought up to date: %w", err)
		}
		r.log.InfoContext(ctx, "the controller starts", "epoch", t.epoch)
	}
	t.initialize(prepareCtx)
	if prepareCtx.Err() != nil {
		return nil
	}
	r.setTask(number, t)
	working := make(chan struct{})
	go func() {
		t.work(workCtx)
		close(working)
	}()
	t.enqueueAll(r.owns(number))
	select {
	case <-ctx.Done():
	case <-yieldCh:
	case <-workCtx.Done():
	}
	r.setTask(number, nil)
	t.queue.Close()
	drain := time.AfterFunc(r.opts.Drain, cancel)
	defer drain.Stop()
	<-working
	return nil
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

// status returns the status of each lease of a controller.
func (r *runner) status() (all []Status) {
	reconciles, failures, last := r.counts.totals()
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, s := range r.slots {
		status := Status{
			Controller: r.controller.name, Type: typeName(r.controller.typ), Placement: r.controller.placement.String(), Shard: i,
			Process: r.opts.Name, Runs: s.task != nil, Epoch: s.epoch, Since: s.since,
			Reconciles: reconciles, Errors: failures, LastSuccess: last,
		}
		if s.task != nil {
			q := s.task.queue.Stats()
			status.Ready, status.Delayed, status.Running, status.Oldest = q.Normal+q.Low, q.Delayed, q.Running, q.Oldest
		}
		all = append(all, status)
	}
	return all
}
