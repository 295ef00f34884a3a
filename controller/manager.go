package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb/resourcegrpc"
)

// Manager runs controllers over a resource service. They share one copy of each type. Register must not be called concurrently or after Run.
type Manager struct {
	client     resourcegrpc.ResourceServiceClient
	opts       Options
	informers  informers
	queries    map[string]Query
	runners    []*runner
	hasStarted bool
}

// NewManager returns a manager of controllers that use a client of the resource service, in the process (service.Server.Client) or over gRPC. The
// service must be of this module.
func NewManager(client resourcegrpc.ResourceServiceClient, o *Options) *Manager {
	m := &Manager{client: client, informers: informers{}, queries: map[string]Query{}}
	if o != nil {
		m.opts = *o
	}
	host, _ := os.Hostname()
	m.opts.Name = cmp.Or(m.opts.Name, fmt.Sprintf("%s/%d", host, os.Getpid()))
	m.opts.LeaseTTL = cmp.Or(m.opts.LeaseTTL, 15*time.Second)
	m.opts.Drain = cmp.Or(m.opts.Drain, 30*time.Second)
	if m.opts.Logger == nil {
		m.opts.Logger = slog.Default()
	}
	return m
}

// Register adds controllers. It returns all mistakes of all controllers; then the manager must not be run.
func (m *Manager) Register(controllers ...*Controller) error {
	var faults []error
	for _, c := range controllers {
		if err := m.register(c); err != nil {
			faults = append(faults, err)
		}
	}
	if m.hasStarted {
		faults = append(faults, errors.New("the manager runs already"))
	}
	return errors.Join(faults...)
}

func (m *Manager) register(c *Controller) error {
	faults := []error{c.check()}
	fault := func(err error) {
		if err != nil {
			faults = append(faults, fmt.Errorf("controller %q: %w", c.name, err))
		}
	}
	for _, r := range m.runners {
		if r.controller.name == c.name {
			fault(errors.New("another controller has the same name"))
		}
	}
	if c.placement.shards > 0 {
		switch _, isTransactor := storage.As[storage.Transactor](m.opts.Leases); {
		case m.opts.Leases == nil:
			fault(fmt.Errorf("the placement %v needs Options.Leases: set it to the backend of the service's store", c.placement))
		case !isTransactor:
			fault(fmt.Errorf("the placement %v needs leases, and the backend is not a storage.Transactor", c.placement))
		}
		if m.opts.LeaseTTL < minLeaseTTL {
			fault(fmt.Errorf("Options.LeaseTTL is %v, expected at least %v", m.opts.LeaseTTL, minLeaseTTL))
		}
		fault(m.checkLocks(c))
	}
	fault(m.informers.add(c.typ, c.tenancy, c.indexes))
	for _, w := range c.watches {
		fault(m.informers.add(w.typ, nil, w.indexes))
	}
	for name := range c.queries {
		if m.queries[name] != nil {
			fault(fmt.Errorf("another controller has a query %q", name))
		}
	}
	maps.Copy(m.queries, c.queries)
	m.runners = append(m.runners, &runner{
		controller: c, client: m.client, leases: m.opts.Leases, opts: m.opts, log: m.opts.Logger.With("controller", c.name),
		slots: make([]slot, max(1, c.placement.shards)), movingCh: make(chan struct{}, 1),
	})
	return errors.Join(faults...)
}

// minLeaseTTL is the minimum of Options.LeaseTTL. Package lease raises shorter ones to it, but the times that are derived here would not match.
const minLeaseTTL = time.Second

// checkLocks reports why a controller cannot have its leases.
func (m *Manager) checkLocks(c *Controller) error {
	own := lockNames(c)
	for _, name := range own {
		if len(name) > maxLockName || !utf8.ValidString(name) {
			return fmt.Errorf("the name of its lease, %.300q, is not UTF-8 of at most %d bytes", name, maxLockName)
		}
	}
	for _, r := range m.runners {
		for _, name := range lockNames(r.controller) {
			if r.controller.name != c.name && slices.Contains(own, name) {
				return fmt.Errorf("the controller %q has the same lease, %q", r.controller.name, name)
			}
		}
	}
	return nil
}

// maxLockName is the maximum number of bytes of the name of a lease.
const maxLockName = 255

// lockNames returns the names of the leases of a controller.
func lockNames(c *Controller) (all []string) {
	for i := range c.placement.shards {
		all = append(all, lockName(c.name, i, c.placement.shards))
	}
	return all
}

// Run runs the controllers until ctx ends, and then returns the context's error. First it fills the cache, and retries while the service is
// unavailable; no controller starts before the cache has all types of all controllers. At the end it lets running reconciles return, for at most
// Options.Drain before it ends their contexts, and frees the leases. It returns when no goroutine of the manager is left, so a reconcile that
// ignores its context blocks it. Call it once.
func (m *Manager) Run(ctx context.Context) error {
	m.hasStarted = true
	defer m.informers.close()
	if err := m.prime(ctx); err != nil {
		return err
	}
	if m.opts.Meter != nil {
		stop, err := observe(m.opts.Meter, m.runners, m.informers)
		if err != nil {
			return fmt.Errorf("register the metrics of controllers: %w", err)
		}
		defer stop()
	}
	c := &cache{informers: m.informers, queries: m.queries}
	var running, recording sync.WaitGroup
	recordCtx, stop := context.WithCancel(context.WithoutCancel(ctx)) // the record stays until the leases are freed
	defer stop()
	var p *process
	if slices.ContainsFunc(m.runners, func(r *runner) bool { return r.controller.placement.shards > 0 }) {
		p = newProcess(m.opts.Leases, m.opts, m.Status)
		recording.Go(func() { p.run(recordCtx) })
	}
	for _, r := range m.runners {
		r.process, r.cache, r.managedInformer = p, c, m.informers[storage.UnversionedTypeFrom(r.controller.typ)]
		running.Go(func() { r.run(ctx) })
	}
	running.Wait()
	stop()
	recording.Wait()
	return ctx.Err()
}

// Status returns the status of each lease of each controller, and of each controller without one. It is safe for concurrent use while the manager runs.
func (m *Manager) Status() (all []Status) {
	for _, r := range m.runners {
		all = append(all, r.status()...)
	}
	return all
}

// prime fills the copies of all types.
func (m *Manager) prime(ctx context.Context) error {
	var priming sync.WaitGroup
	defer priming.Wait()
	for _, i := range m.informers {
		priming.Go(func() { _ = i.openRetrying(ctx, m.client, m.opts.Logger) })
	}
	priming.Wait()
	return ctx.Err()
}
