package controllertest

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/ashlar-dev/storage/controller"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// parts replaces parts of the runtime under test; nil for none. A suite is useful only if it detects broken ones.
type parts struct {
	client     func(resourcegrpc.ResourceServiceClient) resourcegrpc.ResourceServiceClient
	reconciler func(controller.Reconciler) controller.Reconciler
	mapper     func(controller.DependencyMapper) controller.DependencyMapper
	backoff    time.Duration
}

// reporter is the part of testing.TB by which a rule reports a violation.
type reporter interface {
	Helper()
	Errorf(format string, args ...any)
}

// world is the environment of a rule.
type world struct {
	*Env
	reporter
	parts        parts
	timeout      time.Duration
	hasViolation bool
}

// The types of the suite: an item refers to a list by name.
var (
	listType = &resourcepb.Type{Group: "controllertest", GroupVersion: "v1", Kind: "List"}
	itemType = &resourcepb.Type{Group: "controllertest", GroupVersion: "v1", Kind: "Item"}

	items = controller.NewKind[*wrapperspb.StringValue](itemType)
)

// controller returns a controller of lists with the parts of the world.
func (w *world) controller(reconcile controller.ReconcileFunc) *controller.Controller {
	var r controller.Reconciler = reconcile
	if w.parts.reconciler != nil {
		r = w.parts.reconciler(r)
	}
	c := controller.NewController("lists", listType).WithReconciler(r).WithPlacement(controller.PlacementEachServer)
	if w.parts.backoff > 0 {
		c.WithBackoff(w.parts.backoff, w.parts.backoff)
	}
	return c
}

// watchItems makes a controller watch items, which request the list that they refer to.
func (w *world) watchItems(c *controller.Controller) *controller.Controller {
	mapper := func(_ context.Context, _ controller.Runtime, res *resourcepb.Resource) ([]controller.Request, error) {
		return []controller.Request{{ID: ID(listType, "%s", text(res))}}, nil
	}
	if w.parts.mapper != nil {
		return c.WithWatch(itemType, w.parts.mapper(mapper))
	}
	return c.WithWatch(itemType, mapper)
}

// text returns the payload of a list or an item.
func text(res *resourcepb.Resource) string {
	var s wrapperspb.StringValue
	_ = res.GetData().UnmarshalTo(&s)
	return s.GetValue()
}

// put stores a list or an item.
func (w *world) put(typ *resourcepb.Type, name, payload string) *resourcepb.Resource {
	return w.Put(ID(typ, "%s", name), wrapperspb.String(payload))
}

// start starts a process.
func (w *world) start(c *controller.Controller) *Process {
	client := w.Env.Client
	if w.parts.client != nil {
		client = w.parts.client(client)
	}
	return w.startWithClient(client, c)
}

// startWithClient starts a process that uses a client.
func (w *world) startWithClient(client resourcegrpc.ResourceServiceClient, c *controller.Controller) *Process {
	return w.Env.start(client, &controller.Options{LeaseTTL: time.Second, Logger: slog.New(slog.DiscardHandler)}, c)
}

// eventually waits until a condition holds. After the timeout of the rule it reports a violation.
func (w *world) eventually(condition string, holds func() bool) bool {
	w.reporter.Helper()
	pause := 2 * time.Millisecond
	for end := time.Now().Add(w.timeout); !holds(); time.Sleep(pause) {
		pause = min(2*pause, time.Second)
		if time.Now().After(end) {
			w.fail("not within %v: %s", w.timeout, condition)
			return false
		}
	}
	return true
}

func (w *world) fail(format string, args ...any) {
	w.reporter.Helper()
	w.hasViolation = true
	w.reporter.Errorf(format, args...)
}

// record counts the reconciles by the name of the resource.
type record struct {
	mu    sync.Mutex
	count map[string]int
}

func (r *record) add(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == nil {
		r.count = map[string]int{}
	}
	r.count[name]++
	return r.count[name]
}

func (r *record) get(name string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[name]
}

func (r *record) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.count)
}
