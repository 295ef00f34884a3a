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

// outage has the times of the first and the last failure since the last success.
type outage struct{ first, last time.Time }

// maxGap is how long an outage continues, at least, while nobody tries to read.
const maxGap = time.Minute

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
	if time.Since(failing.last) > max(f.opts.Outage, maxGap) {
		*failing = outage{} // its reader has paused, and the database may have answered meanwhile
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
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
		case failing.first.IsZero():
			failing.first = time.Now()
		case time.Since(failing.first) > f.opts.Outage:
			return fmt.Errorf("the database was unreachable for %v: %w", f.opts.Outage, err)
		}
		failing.last = time.Now()
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
