package controller

import (
	"time"
)

// Status describes a controller in this process, or one of its shards.
type Status struct {
	// Controller, Type and Placement describe the controller.
	Controller, Type, Placement string
	// Shard is the number of the shard, of PlacementSharded.
	Shard int
	// Process is the name of the process.
	Process string
	// Runs reports whether this process runs the controller: whether it holds the lease.
	Runs bool
	// Epoch is the number of the tenure, and Since its begin.
	Epoch int64
	Since time.Time
	// Ready, Delayed and Running are the numbers of resources that wait for a reconcile, for a later one, or are being reconciled.
	Ready, Delayed, Running int
	// Oldest is the time that the longest waiting resource has waited.
	Oldest time.Duration
	// Reconciles and Errors are the numbers of reconciles, and of failed ones, of the controller since the process started.
	Reconciles, Errors int64
	// LastSuccess is the time of the last reconcile without an error; zero for none.
	LastSuccess time.Time
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
