package controller

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ashlar-dev/storage/lease"
)

// runSlot runs the tasks of one lease until ctx ends.
func (r *runner) runSlot(ctx context.Context, number int) {
	shards := r.controller.placement.shards
	if shards == 0 {
		_ = r.serve(ctx, number, nil, nil) // without a lease it cannot fail
		return
	}
	name := lockName(r.controller.name, number, shards)
	elector, err := lease.NewElector(r.leases, lockTenancy, name, &lease.Options{TTL: r.opts.LeaseTTL, Holder: r.opts.Name})
	if err != nil {
		r.log.ErrorContext(ctx, "the controller cannot run", "error", err)
		return
	}
	for pause := minElectionPause; ctx.Err() == nil; pause = min(2*pause, maxElectionPause) {
		tenure, err := r.acquire(ctx, elector, number)
		if tenure != nil {
			err = r.hold(ctx, number, elector, tenure)
		}
		if err == nil {
			pause = minElectionPause
		} else if ctx.Err() == nil {
			r.log.ErrorContext(ctx, "the controller cannot have its lease; retrying", "lease", name, "error", err, "pause", pause)
			sleep(ctx, pause)
		}
	}
}

// The pauses after a failure to acquire a lease, or to use it.
const (
	minElectionPause = 50 * time.Millisecond
	maxElectionPause = 5 * time.Second
)

// acquire competes for a lease. It may return nil without an error if another process should hold it.
func (r *runner) acquire(ctx context.Context, elector *lease.Elector, number int) (*lease.Tenure, error) {
	if r.controller.placement.shards == 1 {
		return elector.Campaign(ctx)
	}
	var last lease.State
	var since time.Time // when the lease first had the last state
	for ctx.Err() == nil {
		tick := r.process.tick()
		if wanted, _ := r.process.isWantedHolder(r.controller.name, number); wanted {
			// The campaign goes on for a moment after this process was wanted: if processes come and go, another one may never campaign long enough
			// to find that the holder is dead.
			return campaignUntil(ctx, elector, func(ctx context.Context) { r.awaitUnwanted(ctx, number, r.opts.LeaseTTL) })
		}
		// The wanted process may be unable to acquire the lease. It has had the time to do so if a free lease, or one whose holder sends no
		// heartbeats, has not changed for longer than the wanted process must wait.
		limit := r.opts.LeaseTTL
		if last.Holder != "" {
			limit *= 3
		}
		state, err := elector.State(ctx)
		switch {
		case err != nil || since.IsZero() || state != last:
			last, since = state, time.Now()
		case time.Since(since) > limit:
			return campaignUntil(ctx, elector, func(ctx context.Context) { sleep(ctx, 3*r.opts.LeaseTTL) })
		}
		r.process.awaitTick(ctx, tick)
	}
	return nil, nil
}

// campaignUntil competes for a lease until wait returns.
func campaignUntil(ctx context.Context, elector *lease.Elector, wait func(context.Context)) (*lease.Tenure, error) {
	campaignCtx, cancel := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer cancel()
	waiting.Go(func() { wait(campaignCtx); cancel() })
	tenure, err := elector.Campaign(campaignCtx)
	if campaignCtx.Err() != nil {
		err = nil
	}
	return tenure, err
}

// awaitUnwanted waits until another process has been the wanted holder of a shard for some time, or until ctx ends.
func (r *runner) awaitUnwanted(ctx context.Context, number int, after time.Duration) {
	since := time.Time{}
	for ctx.Err() == nil {
		tick := r.process.tick()
		switch wanted, known := r.process.isWantedHolder(r.controller.name, number); {
		case wanted || !known:
			since = time.Time{}
		case since.IsZero():
			since = time.Now()
		}
		if !since.IsZero() && time.Since(since) >= after {
			return
		}
		r.process.awaitTick(ctx, tick)
	}
}

// hold runs a task while this process holds a lease. It gives a shard up if the shard belongs to another process. Shards of a process move one by one.
// It returns an error if the lease is of no use.
func (r *runner) hold(ctx context.Context, number int, elector *lease.Elector, tenure *lease.Tenure) error {
	if r.controller.placement.shards == 1 {
		defer r.resign(tenure)
		return r.use(ctx, number, elector, tenure, nil)
	}
	watchCtx, cancel := context.WithCancel(ctx)
	yieldCh := make(chan struct{})
	var watching sync.WaitGroup
	isMoving := false
	watching.Go(func() {
		r.awaitUnwanted(watchCtx, number, r.opts.LeaseTTL*2/3)
		select {
		case r.movingCh <- struct{}{}: // a reconcile of the shard that moves before may take long
			isMoving = true
			close(yieldCh)
		case <-watchCtx.Done():
		}
	})
	err := r.use(ctx, number, elector, tenure, yieldCh)
	r.resign(tenure)
	cancel()
	watching.Wait()
	if isMoving {
		<-r.movingCh
	}
	return err
}

// use serves a tenure. If the service has refused the lease although the lease has not moved, it returns an error: the next tenure would end in the
// same way, at once.
func (r *runner) use(ctx context.Context, number int, elector *lease.Elector, tenure *lease.Tenure, yieldCh <-chan struct{}) error {
	if err := r.serve(ctx, number, tenure, yieldCh); !errors.Is(err, errRefused) {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, r.opts.LeaseTTL)
	defer cancel()
	if _, latest, err := elector.Holder(ctx); err != nil || latest != tenure.Epoch() {
		return err
	}
	return fmt.Errorf("%w, although this process holds it: Options.Leases must be the backend of the service's store", errRefused)
}
