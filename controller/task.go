package controller

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/queue"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// task runs the reconciles of one controller during one tenure of a lease, or without a lease.
type task struct {
	controller      *Controller
	client          resourcegrpc.ResourceServiceClient
	managedInformer *informer
	cache           *cache
	log             *slog.Logger
	counts          *counts

	queue     *queue.Queue[managedName]
	uncertain uncertainWrites
	fence     string
	epoch     int64
	endTenure func() // ends the tenure
}

// call is one call of a reconciler. Its parts share an allocation.
type call struct {
	ctx    callContext
	client client
	log    resourceHandler
}

// runtime returns the runtime of a call.
func (t *task) runtime(c *client, log *slog.Logger) Runtime {
	return Runtime{Client: c, Cache: t.cache, Logger: Logger{log}, Epoch: t.epoch, versionedStatus: t.controller.placement.shards == 0}
}

// newClient returns the client of a call. cause is the reconciled resource; the zero key for other calls.
func (t *task) newClient(cause key.Key) client {
	return client{t.client, &t.uncertain, cause, t.fence, t.endTenure}
}

// initialize calls the initializer until it succeeds or ctx ends. Each attempt, and the first reconciles, find the writes of earlier attempts in
// the cache.
func (t *task) initialize(ctx context.Context) {
	if t.controller.initializer == nil {
		return
	}
	t.retryInitial(ctx, func() error {
		if err := t.resolveInitial(ctx); err != nil {
			return err
		}
		c := t.newClient(key.Key{})
		return protect(func() error { return t.controller.initializer.Initialize(ctx, t.runtime(&c, t.log)) })
	})
	t.retryInitial(ctx, func() error { return t.resolveInitial(ctx) })
}

// retryInitial makes attempts at a part of the initialization until one succeeds or ctx ends.
func (t *task) retryInitial(ctx context.Context, try func() error) {
	for pause := 50 * time.Millisecond; ctx.Err() == nil; pause = min(2*pause, time.Minute) {
		err := try()
		if err == nil {
			return
		}
		t.log.ErrorContext(ctx, "the initializer failed; retrying", "error", err, "pause", pause)
		sleep(ctx, pause)
	}
}

// resolveInitial makes the cache include the writes of the initializer. A key that can never be read does not keep the controller from its start.
func (t *task) resolveInitial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, t.controller.timeout)
	defer cancel()
	for {
		err := t.uncertain.resolve(ctx, key.Key{})
		var unreadable *unreadableError
		if !errors.As(err, &unreadable) || !unreadable.isLasting() {
			return err
		}
		t.log.WarnContext(ctx, "the cache may lack a write of the initializer", "error", err)
		t.uncertain.forget(key.Key{}, unreadable.key)
	}
}

// enqueueAll queues all managed resources with low priority, and the delayed keys, whose resources may be deleted.
func (t *task) enqueueAll(owns func(key.Key) bool) {
	t.queue.AddDelayed()
	count := t.managedInformer.copy.Stats().Rows / max(1, t.controller.placement.shards)
	t.queue.AddAllLow(count, func(yield func(managedName) bool) {
		for r := range t.managedInformer.all() {
			if owns(r.Key) && !yield(nameOf(r.Key)) {
				return
			}
		}
	})
}

// managedName is the key of a managed resource without its type, which is the same for all resources of a controller.
type managedName struct{ partition, namespace, name string }

func nameOf(k key.Key) managedName { return managedName{k.Partition, k.Namespace, k.Name} }

// keyOf returns the key of a managed resource.
func (t *task) keyOf(n managedName) key.Key {
	return key.Key{Group: t.controller.typ.GetGroup(), Kind: t.controller.typ.GetKind(), Partition: n.partition, Namespace: n.namespace, Name: n.name}
}

// work reconciles until the queue is closed. It returns when all workers have returned.
func (t *task) work(ctx context.Context) {
	var workers sync.WaitGroup
	defer workers.Wait()
	for range t.controller.workers {
		workers.Go(func() {
			for {
				n, ok := t.queue.Get()
				if !ok {
					return
				}
				t.queue.Done(n, t.reconcile(ctx, t.keyOf(n)))
			}
		})
	}
}

// reconcile reconciles a resource once.
func (t *task) reconcile(ctx context.Context, k key.Key) queue.Outcome {
	began := time.Now()
	c := &call{ctx: callContext{parent: ctx, deadline: began.Add(t.controller.timeout)}, client: t.newClient(k)}
	c.log = resourceHandler{t.log.Handler(), &c.client.cause}
	defer c.ctx.end()
	err := t.uncertain.resolve(&c.ctx, k)
	exists := false
	if err == nil {
		rt := t.runtime(&c.client, slog.New(&c.log))
		uid := ""
		r := t.managedInformer.copy.Get(k)
		if r != nil {
			uid, exists = r.Value.res.GetId().GetUid(), true
		}
		req := Request{ID: k.ID(uid, t.controller.typ.GetGroupVersion())}
		err = protect(func() error {
			if direct, ok := t.controller.reconciler.(rowReconciler); ok {
				return direct.reconcileRow(&c.ctx, rt, req, r)
			}
			return t.controller.reconciler.Reconcile(&c.ctx, rt, req)
		})
	}
	outcome, result := t.outcome(err, exists)
	if errors.Is(err, context.DeadlineExceeded) && c.ctx.Err() != nil {
		result = resultTimeout
	}
	t.counts.add(result, began, time.Now())
	if outcome.Failed {
		t.log.ErrorContext(ctx, "the reconcile failed; retrying", "resource", k.String(), "error", err)
	}
	return outcome
}

// outcome returns the outcome and the result of a reconcile.
func (t *task) outcome(err error, exists bool) (queue.Outcome, result) {
	forced := queue.Outcome{}
	if exists {
		forced = queue.Outcome{After: t.controller.forceEvery - rand.N(t.controller.forceEvery/5+1), Low: true}
	}
	if err == nil {
		return forced, resultOK
	}
	var again requeue
	var end terminal
	switch {
	case errors.As(err, &again):
		return queue.Outcome{After: again.after}, resultRequeue
	case errors.As(err, &end):
		return forced, resultTerminal
	case errors.Is(err, errPanic):
		return queue.Outcome{Failed: true}, resultPanic
	}
	return queue.Outcome{Failed: true}, resultError
}
