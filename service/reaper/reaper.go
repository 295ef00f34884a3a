package reaper

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
	"github.com/ashlar-dev/storage/service"
)

// Reaper deletes the resources that deleted resources owned.
type Reaper struct {
	server *service.Server
	opts   Options
	queue  *queue
}

// Options configures a Reaper.
type Options struct {
	// Settle is the time between the two checks that must find no children before a tombstone is deleted. 0 is 30 seconds.
	Settle time.Duration
	// Workers is the number of tombstones that are processed concurrently. 0 is 8.
	Workers int
	// Logger gets errors. If nil, slog.Default() is used.
	Logger *slog.Logger
}

const (
	defaultSettle  = 30 * time.Second
	defaultWorkers = 8
)

// New returns a reaper for the resources of a server.
func New(server *service.Server, o *Options) *Reaper {
	r := &Reaper{server: server, queue: newQueue()}
	if o != nil {
		r.opts = *o
	}
	if r.opts.Settle <= 0 {
		r.opts.Settle = defaultSettle
	}
	if r.opts.Workers <= 0 {
		r.opts.Workers = defaultWorkers
	}
	if r.opts.Logger == nil {
		r.opts.Logger = slog.Default()
	}
	return r
}

// Run deletes orphaned resources until the context is done, and returns the context's error, or until the store is closed, and returns
// storage.ErrClosed. While the store is unavailable it retries. Call it once.
func (r *Reaper) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for range r.opts.Workers {
		wg.Go(func() {
			for {
				t, err := r.queue.next(ctx)
				if err != nil {
					return
				}
				r.work(ctx, t)
			}
		})
	}
	for pause := minPause; ctx.Err() == nil; pause = min(2*pause, maxPause) {
		began := time.Now()
		err := r.follow(ctx)
		if errors.Is(err, storage.ErrClosed) {
			return err
		}
		if ctx.Err() != nil {
			break
		}
		if time.Since(began) > maxPause {
			pause = minPause
		}
		r.opts.Logger.WarnContext(ctx, "the watch of tombstones ended; reopening it", "error", err, "pause", pause)
		wait(ctx, pause)
	}
	return ctx.Err()
}

// Pending returns the number of deleted resources whose owned resources are being deleted or have yet to be looked for.
func (r *Reaper) Pending() int { return r.queue.size() }

// follow queues all existing and future tombstones.
func (r *Reaper) follow(ctx context.Context) error {
	w, err := r.server.Backend().WatchList(ctx, storage.UnversionedTypeFrom(service.TombstoneType),
		&resourcepb.Tenancy{Partition: storage.Wildcard, Namespace: storage.Wildcard}, "")
	if err != nil {
		return err
	}
	defer w.Close()
	for {
		ev, err := w.Next(ctx)
		if err != nil {
			return err
		}
		if stone := ev.GetUpsert().GetResource(); stone != nil {
			r.take(ctx, stone)
		}
	}
}

// take queues a tombstone.
func (r *Reaper) take(ctx context.Context, stone *resourcepb.Resource) {
	owner, err := service.Tombstone(stone)
	if err != nil {
		r.opts.Logger.ErrorContext(ctx, "a tombstone does not decode and is ignored", "tombstone", stone.GetId(), "error", err)
		return
	}
	r.queue.add(&tombstone{id: stone.GetId(), version: stone.GetVersion(), owner: owner, pause: minPause}, time.Now())
}

// The pauses between two attempts for a tombstone that cannot be finished yet: its owner is stored, its children have finalizers, or the store is
// unavailable.
const (
	minPause = 250 * time.Millisecond
	maxPause = time.Minute
)

// work processes a tombstone and requeues it unless it is finished.
func (r *Reaper) work(ctx context.Context, t *tombstone) {
	again, err := r.process(ctx, t)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.opts.Logger.WarnContext(ctx, "the children of a deleted resource are not deleted yet; retrying", "owner", t.owner, "error", err, "again in", t.pause)
		again = t.pause
	}
	if again > 0 {
		r.queue.requeue(t, time.Now().Add(again))
		return
	}
	r.queue.remove(t)
}

// process deletes the children of a tombstone's owner, or the tombstone if there are no children. It returns the time until the next attempt, 0 for
// none.
func (r *Reaper) process(ctx context.Context, t *tombstone) (again time.Duration, err error) {
	retryLater := func() time.Duration {
		pause := t.pause
		t.pause = min(2*t.pause, maxPause)
		return pause
	}
	deleted, err := r.isDeleted(ctx, t.owner)
	switch {
	case errors.Is(err, storage.ErrInvalid):
		r.opts.Logger.ErrorContext(ctx, "a tombstone has an invalid owner and is ignored", "tombstone", t.id, "owner", t.owner, "error", err)
		return 0, nil
	case err == nil && !deleted:
		t.firstEmpty = time.Time{}
		if stored, err := r.refresh(ctx, t); err != nil || stored {
			return retryLater(), err
		}
		return 0, nil
	case err != nil:
		t.firstEmpty = time.Time{}
		return retryLater(), err
	}
	owned, err := r.server.Backend().OwnerReferences(ctx, t.owner)
	if err != nil {
		return retryLater(), err
	}
	if len(owned) > 0 {
		t.firstEmpty = time.Time{}
		return retryLater(), r.deleteAll(ctx, t.owner, owned)
	}
	if t.firstEmpty.IsZero() {
		t.firstEmpty = time.Now()
	}
	if remaining := r.opts.Settle - time.Since(t.firstEmpty); remaining > 0 {
		return remaining, nil
	}
	err = r.server.Backend().DeleteCAS(ctx, t.id, t.version)
	if errors.Is(err, storage.ErrCASFailure) {
		var stored bool
		if stored, err = r.refresh(ctx, t); stored {
			return retryLater(), err // retry with the current version
		}
	}
	if err != nil {
		return retryLater(), err
	}
	return 0, nil
}

// refresh reports whether a tombstone is still stored, and updates its version.
func (r *Reaper) refresh(ctx context.Context, t *tombstone) (stored bool, err error) {
	res, err := r.server.Backend().Read(ctx, storage.StrongConsistency, t.id)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		t.version = res.GetVersion()
	}
	return err == nil, err
}

// isDeleted reports whether an incarnation of a resource is proven to be deleted.
func (r *Reaper) isDeleted(ctx context.Context, id *resourcepb.ID) (bool, error) {
	_, err := r.server.Backend().Read(ctx, storage.StrongConsistency, id)
	if errors.Is(err, storage.ErrNotFound) {
		return true, nil
	}
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
		return false, nil // this uid is stored in another group version
	}
	return false, err
}

// maxParallelDeletions is the maximum number of concurrent deletions for one owner.
const maxParallelDeletions = 16

// deleteAll deletes the children of an owner. After an error it deletes the other children nevertheless, and returns one of the errors.
func (r *Reaper) deleteAll(ctx context.Context, owner *resourcepb.ID, owned []*resourcepb.ID) error {
	var mu sync.Mutex
	var first error
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallelDeletions)
	for _, id := range owned {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := r.server.Reap(ctx, id, proto.CloneOf(owner)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				first = err
			}
		})
	}
	wg.Wait()
	return first
}

// wait waits for a duration or until ctx is done.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
