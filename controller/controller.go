package controller

import (
	"errors"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Controller describes a control loop over the resources of one type. Build it with NewController and the With methods, each of which returns its
// receiver, and pass it to Manager.Register, which reports every mistake. It must not be changed afterwards.
type Controller struct {
	name        string
	typ         *resourcepb.Type
	indexes     []*Index
	tenancy     *resourcepb.Tenancy
	reconciler  Reconciler
	watches     []typeWatch
	sources     []customWatch
	queries     map[string]Query
	initializer Initializer
	placement   Placement
	noFence     bool

	baseBackoff, maxBackoff time.Duration
	forceEvery, timeout     time.Duration
	workers                 int
}

// watched is a type that a controller watches besides the managed one.
type typeWatch struct {
	typ     *resourcepb.Type
	mapper  DependencyMapper
	indexes []*Index
}

// customWatch is a source of events.
type customWatch struct {
	source *Source
	mapper CustomDependencyMapper
}

// Placement says which processes run a controller.
type Placement struct {
	shards int // number of leases; 0 for none
	name   string
}

var (
	// PlacementSingleton runs the controller in one process at a time, which holds a lease.
	PlacementSingleton = Placement{1, "singleton"}
	// PlacementEachServer runs the controller in every process, without a lease.
	PlacementEachServer = Placement{0, "each-server"}
)

// PlacementSharded divides the managed resources by their ids among n leases, which move one at a time when processes start and end. All processes
// must use the same n. The processes share the leases by chance: n should be several times the number of processes, or one of them may hold none.
func PlacementSharded(n int) Placement { return Placement{n, fmt.Sprintf("sharded/%d", n)} }

// String returns the name of the placement.
func (p Placement) String() string { return p.name }

// NewController returns a controller of the resources of a type, with further indexes of them. Name identifies its lease: all processes that run the
// controller use the same name, and no other controller of the store does.
func NewController(name string, t *resourcepb.Type, indexes ...*Index) *Controller {
	return &Controller{
		name: name, typ: proto.CloneOf(t), indexes: indexes, queries: map[string]Query{}, placement: PlacementSingleton,
		forceEvery: 8 * time.Hour, timeout: time.Minute, workers: 1,
	}
}

// WithReconciler sets the reconciler.
func (c *Controller) WithReconciler(r Reconciler) *Controller {
	c.reconciler = r
	return c
}

// WithWatch adds a type whose changes cause reconciles of the managed resources that the mapper returns. A nil mapper only adds the type to the
// cache.
func (c *Controller) WithWatch(t *resourcepb.Type, mapper DependencyMapper, indexes ...*Index) *Controller {
	c.watches = append(c.watches, typeWatch{proto.CloneOf(t), mapper, indexes})
	return c
}

// WithCustomWatch adds a source of events.
func (c *Controller) WithCustomWatch(source *Source, mapper CustomDependencyMapper) *Controller {
	c.sources = append(c.sources, customWatch{source, mapper})
	return c
}

// WithQuery adds a query of the cache. Controllers of a manager share queries, so the names must differ.
func (c *Controller) WithQuery(name string, q Query) *Controller {
	c.queries[name] = q
	return c
}

// WithInitializer sets a function that runs before the first reconcile.
func (c *Controller) WithInitializer(i Initializer) *Controller {
	c.initializer = i
	return c
}

// WithBackoff sets the delay after the first failure, which doubles with each further one, and its maximum. The defaults are 5 ms and 1,000 s. Each
// delay is shortened by up to a fifth at random.
func (c *Controller) WithBackoff(base, max time.Duration) *Controller {
	c.baseBackoff, c.maxBackoff = base, max
	return c
}

// WithPlacement sets the placement. The default is PlacementSingleton.
func (c *Controller) WithPlacement(p Placement) *Controller {
	c.placement = p
	return c
}

// WithForceReconcileEvery sets the time after which a resource is reconciled without a change. The default is 8 hours. It is shortened by up to a
// fifth at random.
func (c *Controller) WithForceReconcileEvery(d time.Duration) *Controller {
	c.forceEvery = d
	return c
}

// WithWorkers sets the number of concurrent reconciles. The default is 1.
func (c *Controller) WithWorkers(n int) *Controller {
	c.workers = n
	return c
}

// WithTimeout sets the time after which the context of a reconcile ends. The default is a minute.
func (c *Controller) WithTimeout(d time.Duration) *Controller {
	c.timeout = d
	return c
}

// WithTenancy restricts the managed resources to a tenancy, whose units may be "*".
func (c *Controller) WithTenancy(t *resourcepb.Tenancy) *Controller {
	c.tenancy = proto.CloneOf(t)
	return c
}

// WithoutFence makes the writes cheaper on databases that charge for each checked key, such as DynamoDB. Then a process that was paused, and has
// lost its lease meanwhile, may write after it resumes, beside its successor.
func (c *Controller) WithoutFence() *Controller {
	c.noFence = true
	return c
}

// Name returns the name.
func (c *Controller) Name() string { return c.name }

// check returns all mistakes of the description.
func (c *Controller) check() error {
	var faults []error
	fault := func(isFault bool, format string, args ...any) {
		if isFault {
			faults = append(faults, fmt.Errorf("controller %q: "+format, append([]any{c.name}, args...)...))
		}
	}
	if err := checkName("controller", c.name); err != nil {
		faults = append(faults, err)
	}
	fault(c.typ.GetGroup() == "" || c.typ.GetGroupVersion() == "" || c.typ.GetKind() == "", "the type %s is not complete", typeName(c.typ))
	fault(c.reconciler == nil, "it has no reconciler: call WithReconciler")
	fault(c.workers < 1, "%d workers, expected at least 1", c.workers)
	fault(c.timeout <= 0, "a timeout of %v, expected a positive one", c.timeout)
	fault(c.forceEvery <= 0, "a forced reconcile every %v, expected a positive time", c.forceEvery)
	fault(c.baseBackoff < 0 || c.maxBackoff < c.baseBackoff, "a back-off from %v to %v", c.baseBackoff, c.maxBackoff)
	fault(c.placement.shards < 0 || c.placement == PlacementSharded(0), "a placement with %d shards", c.placement.shards)
	fault(c.placement == Placement{}, "the zero placement: use PlacementSingleton or another placement of this package")
	seen := map[storage.UnversionedType]bool{}
	for _, w := range c.watches {
		name := storage.UnversionedTypeFrom(w.typ)
		fault(seen[name], "the type %s is watched twice", typeName(w.typ))
		seen[name] = true
	}
	for _, s := range c.sources {
		fault(s.source == nil || s.source.Source == nil || s.mapper == nil, "a custom watch without a source or a mapper")
	}
	for name, q := range c.queries {
		fault(q == nil, "the query %q is nil", name)
		if err := checkName("query", name); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}
