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

// Reaper deletes what deleted resources owned.
type Reaper struct {
	server *service.Server
	opts   Options
	queue  *queue
}

// Options are the options of a Reaper.
type Options struct {
	// Settle is the time between the two looks that have to find nothing before a tombstone is deleted. 0 is 30 seconds.
	Settle time.Duration
	// Workers is the number of tombstones that are looked at at the same time. 0 is 8.
	Workers int
	// Logger is told of what goes wrong. Nil: slog.Default().
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

// Run deletes what deleted resources owned until the context is over, and returns its error, or until the store is closed, with
// storage.ErrClosed. It is to be called once. While the store is away it tries again.
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
		r.opts.Logger.WarnContext(ctx, "the watch of tombstones ended, and is opened again", "error", err, "pause", pause)
		wait(ctx, pause)
	}
	return ctx.Err()
}

// follow has every tombstone looked at, those there are and those to come.
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

// take puts a tombstone into the queue.
func (r *Reaper) take(ctx context.Context, stone *resourcepb.Resource) {
	owner, err := service.Tombstone(stone)
	if err != nil {
		r.opts.Logger.ErrorContext(ctx, "a tombstone cannot be read, and is left alone", "tombstone", stone.GetId(), "error", err)
		return
	}
	r.queue.add(&tombstone{id: stone.GetId(), version: stone.GetVersion(), owner: owner, pause: minPause}, time.Now())
}

// The pauses between two looks at a tombstone that cannot be settled: its owner is still there, or what it owns waits for finalizers, or
// the store is away.
const (
	minPause = 250 * time.Millisecond
	maxPause = time.Minute
)

// work looks at a tombstone, and puts it back unless it is settled.
func (r *Reaper) work(ctx context.Context, t *tombstone) {
	again, err := r.process(ctx, t)
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		r.opts.Logger.WarnContext(ctx, "what a deleted resource owned is not deleted yet", "owner", t.owner, "error", err, "again in", t.pause)
		again = t.pause
	}
	if again > 0 {
		r.queue.requeue(t, time.Now().Add(again))
		return
	}
	r.queue.remove(t)
}

// process deletes what the owner of a tombstone left, or the tombstone if nothing is left. It returns the time after which to process again, 0
// for never.
func (r *Reaper) process(ctx context.Context, t *tombstone) (again time.Duration, err error) {
	unsettled := func() time.Duration {
		pause := t.pause
		t.pause = min(2*t.pause, maxPause)
		return pause
	}
	gone, err := r.isDeleted(ctx, t.owner)
	switch {
	case errors.Is(err, storage.ErrInvalid):
		r.opts.Logger.ErrorContext(ctx, "a tombstone names no resource, and is left alone", "tombstone", t.id, "owner", t.owner, "error", err)
		return 0, nil
	case err == nil && !gone:
		t.firstEmpty = time.Time{}
		if there, err := r.refresh(ctx, t); err != nil || there {
			return unsettled(), err
		}
		return 0, nil
	case err != nil:
		t.firstEmpty = time.Time{}
		return unsettled(), err
	}
	owned, err := r.server.Backend().OwnerReferences(ctx, t.owner)
	if err != nil {
		return unsettled(), err
	}
	if len(owned) > 0 {
		t.firstEmpty = time.Time{}
		return unsettled(), r.deleteAll(ctx, t.owner, owned)
	}
	if t.firstEmpty.IsZero() {
		t.firstEmpty = time.Now()
	}
	if left := r.opts.Settle - time.Since(t.firstEmpty); left > 0 {
		return left, nil
	}
	err = r.server.Backend().DeleteCAS(ctx, t.id, t.version)
	if errors.Is(err, storage.ErrCASFailure) {
		var there bool
		if there, err = r.refresh(ctx, t); there {
			return unsettled(), err // and delete it at the version that it has now
		}
	}
	if err != nil {
		return unsettled(), err
	}
	return 0, nil
}

// refresh reports whether a tombstone is still stored, and notes its version.
func (r *Reaper) refresh(ctx context.Context, t *tombstone) (there bool, err error) {
	res, err := r.server.Backend().Read(ctx, storage.StrongConsistency, t.id)
	if errors.Is(err, storage.ErrNotFound) {
		return false, nil
	}
	if err == nil {
		t.version = res.GetVersion()
	}
	return err == nil, err
}

// isDeleted reports whether an incarnation of a resource is proven to be stored no more.
func (r *Reaper) isDeleted(ctx context.Context, id *resourcepb.ID) (bool, error) {
	_, err := r.server.Backend().Read(ctx, storage.StrongConsistency, id)
	if errors.Is(err, storage.ErrNotFound) {
		return true, nil
	}
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
		return false, nil // stored, with this uid, under another group version
	}
	return false, err
}

// maxParallelDeletions is the largest number of resources that are deleted at the same time for one owner.
const maxParallelDeletions = 16

// deleteAll deletes resources that an owner left. The error is one of those that came up; the others are gone nevertheless.
func (r *Reaper) deleteAll(ctx context.Context, owner *resourcepb.ID, owned []*resourcepb.ID) error {
	var mu sync.Mutex
	var failed error
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxParallelDeletions)
	for _, id := range owned {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if err := r.server.Reap(ctx, id, proto.CloneOf(owner)); err != nil {
				mu.Lock()
				defer mu.Unlock()
				failed = err
			}
		})
	}
	wg.Wait()
	return failed
}

// wait waits for some time, or for the end of ctx.
func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
