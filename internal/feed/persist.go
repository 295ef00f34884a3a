package feed

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
)

// Persist tries something that a watch needs again while the database is away, for as long as an outage may last, and life, which is
// that of the watch, and the feed go on. What is lost for good ends it. When over is closed it ends with an error after a failure.
func (f *Feed[P]) Persist(life context.Context, over <-chan struct{}, try func(ctx context.Context) error) error {
	leave, ok := f.enter()
	if !ok {
		return storage.ErrClosed
	}
	defer leave()
	ctx, cancel := context.WithCancel(f.lifetime)
	defer cancel()
	defer context.AfterFunc(life, cancel)()
	var firstFailure time.Time
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		err := try(ctx)
		switch {
		case err == nil:
			return nil
		case f.closed.Load():
			return storage.ErrClosed
		case ctx.Err() != nil:
			return storage.ErrWatchClosed
		case errors.Is(err, storage.ErrCompacted), errors.Is(err, storage.ErrClosed):
			return err
		case firstFailure.IsZero():
			firstFailure = time.Now()
		case time.Since(firstFailure) > f.opts.Outage:
			return fmt.Errorf("the database stayed away for %v: %w", f.opts.Outage, err)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-over:
			return errRunEnded
		}
	}
}
