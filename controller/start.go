package controller

import (
	"context"
	"sync"

	"github.com/ashlar-dev/storage"
)

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
	follow(&mapping{informer: r.managedInformer})
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
