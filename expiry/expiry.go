package expiry

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// Expirer deletes the resources of a store whose time to live has passed.
type Expirer struct {
	backend           storage.Backend
	opts              Options
	queue             *queue
	deleted, failures atomic.Int64
	warnings          rate.Sometimes
}

// Options configures an Expirer.
type Options struct {
	// Delete deletes a resource at a version, with the results of [storage.Backend]'s DeleteCAS, which is the default. Over the resource service,
	// use the server's Expire.
	Delete func(ctx context.Context, id *resourcepb.ID, version string) error
	// Concurrency is the number of concurrent deletions. 0 is 8.
	Concurrency int
	// Logger gets errors. If nil, slog.Default() is used.
	Logger *slog.Logger
}

const (
	defaultConcurrency = 8
	// warnInterval is the minimum time between two log records of failed deletions: an outage may affect many resources.
	warnInterval = 10 * time.Second
)

// New returns an Expirer for the resources of a store. It does not close the backend.
func New(b storage.Backend, o *Options) *Expirer {
	e := &Expirer{backend: b, queue: newQueue(), warnings: rate.Sometimes{Interval: warnInterval}}
	if o != nil {
		e.opts = *o
	}
	if e.opts.Delete == nil {
		e.opts.Delete = b.DeleteCAS
	}
	if e.opts.Concurrency <= 0 {
		e.opts.Concurrency = defaultConcurrency
	}
	if e.opts.Logger == nil {
		e.opts.Logger = slog.Default()
	}
	return e
}

// Stats describes the work of an Expirer.
type Stats struct {
	// Pending is the number of stored resources with a time to live.
	Pending int
	// Deleted is the number of successful deletions. Expirers that delete one resource at the same time both count it.
	Deleted int64
	// Failures is the number of failed deletions. A deletion of a resource that was written meanwhile is none.
	Failures int64
	// Overdue is how long the first of the pending deletions has been overdue, 0 if none is.
	Overdue time.Duration
}

// Stats returns the state of the Expirer.
func (e *Expirer) Stats() Stats {
	s := Stats{Deleted: e.deleted.Load(), Failures: e.failures.Load()}
	s.Pending, s.Overdue = e.queue.stats(time.Now())
	return s
}

// Run deletes resources until the context is done, and returns the context's error, or until the store is closed, and returns
// storage.ErrClosed. While the store is unavailable it retries. Call it once.
func (e *Expirer) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	defer wg.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	wg.Go(func() { e.deleteDue(ctx) })
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		began := time.Now()
		err := follow(ctx, e.backend, e.queue)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, storage.ErrClosed) {
			return err
		}
		if time.Since(began) > maxPause {
			pause = minPause
		}
		e.opts.Logger.WarnContext(ctx, "the watch for times to live ended; reopening it", "error", err, "pause", pause)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// deleteDue deletes resources when they are due, several at once, until the context is done.
func (e *Expirer) deleteDue(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	slots := make(chan struct{}, e.opts.Concurrency)
	for {
		next, err := e.queue.next(ctx)
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		wg.Go(func() {
			defer func() { <-slots }()
			e.expire(ctx, next)
		})
	}
}

// expire deletes a resource at the version whose time to live has passed. If the resource was written meanwhile, the time of the stored version starts.
func (e *Expirer) expire(ctx context.Context, due *entry) {
	err := e.opts.Delete(ctx, due.id, due.version)
	switch {
	case err == nil:
		e.deleted.Add(1)
		e.queue.finish(due)
	case ctx.Err() == nil:
		if errors.Is(err, storage.ErrCASFailure) && !errors.Is(err, storage.ErrInconsistent) {
			e.refresh(ctx, due)
		} else {
			n := e.failures.Add(1)
			e.warnings.Do(func() {
				e.opts.Logger.WarnContext(ctx, "a resource is not deleted after its time to live yet; retrying", "resource", due.id, "error", err, "failures", n)
			})
		}
		e.queue.retry(due)
	}
}

// refresh replaces an entry by the stored version. The watch may be late, or may never return that version: package moved continues a watch in another
// store, where the copied resources have other versions.
func (e *Expirer) refresh(ctx context.Context, due *entry) {
	res, err := e.backend.Read(ctx, storage.StrongConsistency, due.id)
	if mismatch := (storage.GroupVersionMismatchError{}); errors.As(err, &mismatch) {
		res, err = mismatch.Stored, nil
	}
	if err == nil {
		e.queue.replace(due, res, timeToLive(res))
	}
}
