package controller

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments are the metrics of a manager. Their attributes are names of controllers and types, never of resources.
type instruments struct {
	depth, objects, epoch       metric.Int64ObservableGauge
	oldest, lastSuccess         metric.Float64ObservableGauge
	reconciles, ignoredRequests metric.Int64ObservableCounter
	seconds                     metric.Float64ObservableCounter
}

// observe reports the state of a manager's controllers and copies to a meter until stop is called.
func observe(meter metric.Meter, runners []*runner, copies informers) (stop func(), err error) {
	var faults [8]error
	i := &instruments{}
	i.depth, faults[0] = meter.Int64ObservableGauge("ashlar.controller.queue.depth", metric.WithDescription("Resources that wait for a reconcile, for a later one, or are being reconciled."))
	i.oldest, faults[1] = meter.Float64ObservableGauge("ashlar.controller.queue.oldest", metric.WithUnit("s"), metric.WithDescription("Time that the longest waiting resource has waited."))
	i.reconciles, faults[2] = meter.Int64ObservableCounter("ashlar.controller.reconciles", metric.WithDescription("Reconciles by result."))
	i.seconds, faults[3] = meter.Float64ObservableCounter("ashlar.controller.reconcile.time", metric.WithUnit("s"), metric.WithDescription("Total duration of reconciles."))
	i.ignoredRequests, faults[4] = meter.Int64ObservableCounter("ashlar.controller.ignored", metric.WithDescription("Requests of mappers for resources of another type."))
	i.lastSuccess, faults[5] = meter.Float64ObservableGauge("ashlar.controller.last_success", metric.WithUnit("s"), metric.WithDescription("Time of the last reconcile without an error, in seconds since 1970."))
	i.epoch, faults[6] = meter.Int64ObservableGauge("ashlar.controller.lease.epoch", metric.WithDescription("Epoch of the held lease. A process that does not hold the lease has no value."))
	i.objects, faults[7] = meter.Int64ObservableGauge("ashlar.informer.objects", metric.WithDescription("Resources of a type in the cache."))
	if err := errors.Join(faults[:]...); err != nil {
		return nil, err
	}
	registration, err := meter.RegisterCallback(func(_ context.Context, o metric.Observer) error {
		for _, r := range runners {
			i.observeRunner(o, r)
		}
		for _, informer := range copies {
			o.ObserveInt64(i.objects, int64(informer.copy.Stats().Rows), metric.WithAttributes(attribute.String("type", typeName(informer.typ))))
		}
		return nil
	}, i.depth, i.objects, i.epoch, i.oldest, i.lastSuccess, i.reconciles, i.ignoredRequests, i.seconds)
	if err != nil {
		return nil, err
	}
	return func() { _ = registration.Unregister() }, nil
}

// observeRunner reports the state of a controller.
func (i *instruments) observeRunner(o metric.Observer, r *runner) {
	name := attribute.String("controller", r.controller.name)
	only := metric.WithAttributes(name)
	for _, s := range r.status() {
		if !s.Runs {
			continue
		}
		shard := attribute.Int("shard", s.Shard)
		for state, n := range map[string]int{"ready": s.Ready, "delayed": s.Delayed, "running": s.Running} {
			o.ObserveInt64(i.depth, int64(n), metric.WithAttributes(name, shard, attribute.String("state", state)))
		}
		o.ObserveFloat64(i.oldest, s.Oldest.Seconds(), metric.WithAttributes(name, shard))
		if s.Epoch > 0 {
			o.ObserveInt64(i.epoch, s.Epoch, metric.WithAttributes(name, shard))
		}
	}
	r.counts.mu.Lock()
	defer r.counts.mu.Unlock()
	for kind, n := range r.counts.results {
		o.ObserveInt64(i.reconciles, n, metric.WithAttributes(name, attribute.String("result", resultNames[kind])))
	}
	o.ObserveFloat64(i.seconds, r.counts.seconds, only)
	o.ObserveInt64(i.ignoredRequests, r.counts.ignoredRequests, only)
	if !r.counts.lastSuccess.IsZero() {
		o.ObserveFloat64(i.lastSuccess, float64(r.counts.lastSuccess.UnixMilli())/1000, only)
	}
}
