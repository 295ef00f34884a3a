package feed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
)

// Persist retries an operation of a watch while the database is unreachable: for the time of an outage, and until the watch's
// lifetime or the feed ends. Discarded history ends it.
func (f *Feed[P]) Persist(lifetime context.Context, try func(ctx context.Context) error) error {
	return f.persist(lifetime, nil, &outage{}, try)
}

// outage counts how long an operation has failed since its last success.
type outage struct {
	duration time.Duration
	last     time.Time // of the last failure; zero if there is none
}

// maxGap is the part of the time between two attempts that counts. A reader may pause for longer, and the database may answer meanwhile.
const maxGap = time.Second

// fail records the failure of an attempt that began at a time.
func (o *outage) fail(began time.Time) {
	now := time.Now()
	if !o.last.IsZero() {
		o.duration += min(began.Sub(o.last), maxGap) + now.Sub(began)
	}
	o.last = now
}

// persist is Persist for an operation that needs a run: after the run's end, which closes ended, the next failure returns errRunEnded. The caller
// keeps the outage for the next run, so that an outage of several runs ends, too.
func (f *Feed[P]) persist(lifetime context.Context, ended <-chan struct{}, failing *outage, try func(ctx context.Context) error) error {
	leave, ok := f.enter()
	if !ok {
		return storage.ErrClosed
	}
	defer leave()
	ctx, cancel := context.WithCancel(f.lifetime)
	defer cancel()
	defer context.AfterFunc(lifetime, cancel)()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, maxGap) {
		began := time.Now()
		err := try(ctx)
		switch {
		case err == nil:
			*failing = outage{}
			return nil
		case f.closed.Load():
			return storage.ErrClosed
		case ctx.Err() != nil:
			return storage.ErrWatchClosed
		case errors.Is(err, storage.ErrCompacted), errors.Is(err, storage.ErrClosed):
			return err
		}
		if failing.fail(began); failing.duration > f.opts.Outage {
			return fmt.Errorf("the database was unreachable for %v: %w", f.opts.Outage, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-ended:
			return errRunEnded
		}
	}
}

// errRunEnded is the error of a page of history that failed because the run has ended.
var errRunEnded = errors.New("the run has ended")
