package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
)

// retrier repeats calls while a database does not answer, or cannot do what it is asked for at the moment.
type retrier struct {
	timeout time.Duration // for how long
	waiting func(error)   // told about each failed attempt; may be nil
}

// do repeats call until it succeeds, fails for a reason that stays (any but storage.ErrInconsistent), or patience is at its end.
// call has to be harmless when repeated.
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
			return fmt.Errorf("%s: given up after trying for %v: %w", what, lost.Round(time.Second), err)
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

// withoutDeadline returns a context that ends when ctx does, but has no deadline. Each call to a database then gets the time that its
// backend gives it, and not all that is left for the whole: a silent database is noticed.
func withoutDeadline(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	free, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() { cancel(context.Cause(ctx)) })
	return free, func(cause error) {
		stop()
		cancel(cause)
	}
}
