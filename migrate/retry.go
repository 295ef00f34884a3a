package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
)

// retrier repeats calls while a database does not answer, or temporarily fails.
type retrier struct {
	timeout time.Duration // maximum duration of all attempts
	waiting func(error)   // called with each failed attempt; may be nil
}

// do repeats call until it succeeds, fails permanently (with any error but storage.ErrInconsistent), or the timeout has passed.
// call must be safe to repeat.
func (r retrier) do(ctx context.Context, what string, call func(ctx context.Context) error) error {
	var since time.Time
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		err := call(ctx)
		if err == nil || ctx.Err() != nil || !errors.Is(err, storage.ErrInconsistent) {
			return err
		}
		if since.IsZero() {
			since = time.Now()
		} else if lost := time.Since(since); lost > r.timeout {
			return fmt.Errorf("%s: failed for %v: %w", what, lost.Round(time.Second), err)
		}
		if r.waiting != nil {
			r.waiting(err)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return err
		}
	}
}

// withoutDeadline returns a context that ends when ctx does, but has no deadline. Each call of a database then gets the backend's
// own timeout instead of the whole remaining time, so that a database that does not answer is detected.
func withoutDeadline(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	free, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return free, func(cause error) {
		stop()
		cancel(cause)
	}
}
