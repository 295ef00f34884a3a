package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ashlar-dev/storage"
)

// playRound runs workers and the nemesis, waits until all followers have seen all events, and returns the working time.
func playRound(run context.Context, r *round, followers []*follower, during time.Duration) (worked time.Duration, err error) {
	ctx, cancel := context.WithTimeout(run, during)
	defer cancel()
	r.full = cancel
	first, since, err := startRevision(run, r)
	if err != nil {
		return 0, cmp.Or(run.Err(), err)
	}
	logCtx, stopLogs := context.WithCancel(run)
	var lastRevision atomic.Int64
	var logging sync.WaitGroup
	defer logging.Wait()
	defer stopLogs()
	if first > 0 {
		logging.Go(func() { r.followLogs = followRound(logCtx, r, first, since, &lastRevision) })
	}
	began := r.run.now()
	var working sync.WaitGroup
	for i := range r.run.o.Workers {
		c := newClient(r, fmt.Sprintf("worker-%d", i), i%len(r.run.handles))
		working.Go(func() { work(c, ctx.Done()) })
	}
	n := &nemesis{run: r.run, round: r, random: r.run.source(fmt.Sprint(r.number, "nemesis"))}
	err = n.injectAll(ctx)
	working.Wait()
	worked = r.run.now() - began
	if err = cmp.Or(err, run.Err()); err != nil {
		return worked, err
	}
	if err := finish(newClient(r, "finisher", 0), r.run.now()+r.run.o.Timeout); err != nil {
		r.report(Violation{"writes go on", err.Error()})
		return worked, nil
	}
	var awaited sync.WaitGroup
	for _, f := range followers {
		awaited.Go(func() {
			awaitWrites(run, r, f)
			awaitBookmark(run, r, f)
		})
	}
	awaited.Wait()
	if first > 0 {
		if err := conclude(run, r, first, since, &lastRevision, &logging); err != nil {
			return worked, cmp.Or(run.Err(), err)
		}
	}
	return worked, run.Err()
}

// conclude waits until the logs reach the end of the round, and then follows the round once more.
func conclude(run context.Context, r *round, first int64, since time.Duration, lastRevision *atomic.Int64, logging *sync.WaitGroup) error {
	h, _ := r.run.historian(0)
	_, last, err := newestRevision(run, r, h)
	if err != nil {
		return err
	}
	lastRevision.Store(last)
	r.secondLog, err = replayFollower(run, r, first, last, since)
	logging.Wait()
	return err
}

// awaitWrites waits until a follower has seen the last write to every key. It stops when the follower has seen no event for too
// long, or when the run is abandoned.
func awaitWrites(ctx context.Context, r *round, f *follower) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for began, before := r.run.now(), 0; ; {
		select {
		case <-f.complete:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		f.mu.Lock()
		got, keysDone, handle := len(f.events), len(f.lastWrites), f.handle
		f.mu.Unlock()
		if got > before {
			began, before = r.run.now(), got
		}
		if r.run.now()-began > r.run.o.Timeout {
			r.report(Violation{"watches go on", fmt.Sprintf("%s on handle %d has seen the last write to %d of %d keys, and no event for %v after all faults ended",
				f.name, handle, keysDone, len(r.keys), r.run.o.Timeout)})
			return
		}
	}
}

// awaitBookmark waits for the outstanding bookmark of a follower.
func awaitBookmark(ctx context.Context, r *round, f *follower) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for began := r.run.now(); ; {
		requestedAt := f.pendingBookmark()
		switch {
		case requestedAt == 0 || requestedAt > began:
			return
		case r.run.now()-began > r.run.o.Timeout:
			r.report(Violation{"bookmarks come", fmt.Sprintf("%s on handle %d requested a bookmark at %s and did not get it within %v after all faults ended",
				f.name, f.handle, formatTime(requestedAt), r.run.o.Timeout)})
			return
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// cleanUp deletes the resources of the round.
func cleanUp(ctx context.Context, r *round) error {
	b := r.run.handles[0]
	all, err := b.List(ctx, storage.StrongConsistency, thing, roundTenancy(r.namespace), "")
	for _, res := range all {
		if err == nil {
			err = b.DeleteCAS(ctx, res.Id, res.Version)
		}
	}
	if err != nil && !errors.Is(err, storage.ErrInconsistent) && !errors.Is(err, storage.ErrCASFailure) {
		return fmt.Errorf("faults: cleaning up after a round: %w", err)
	}
	return nil
}
