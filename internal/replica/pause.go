package replica

import (
	"context"
	"time"
)

// The pauses after a failed read of the database, or between two lists.
const (
	minPause = 20 * time.Millisecond
	maxPause = time.Second
)

// nextPause returns the pause that follows a pause.
func nextPause(pause time.Duration) time.Duration { return min(max(2*pause, minPause), maxPause) }

// sleep pauses, or returns the error of a context that ends first.
func sleep(ctx context.Context, pause time.Duration) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
