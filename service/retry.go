package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/ashlar-dev/storage"
)

// retryPauses are the pauses between the attempts of a write without a version that conflicted with another write. Each is extended by up to half of
// its length at random. They are the pauses of the compatible API.
var retryPauses = []time.Duration{75 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond}

// decisionError wraps an error that was decided from the stored resource that was read.
type decisionError struct{ error }

// Unwrap returns the wrapped error.
func (r decisionError) Unwrap() error { return r.error }

// retryConflicts calls attempt, which reads and then writes. A decisionError after an eventual read leads to another attempt with a strong read.
// After a conflict with another write, a write without a version is attempted up to five times.
func retryConflicts(ctx context.Context, versioned bool, attempt func(storage.ReadConsistency) error) error {
	consistency := storage.EventualConsistency
	for failures := 0; ; {
		err := attempt(consistency)
		if r := (decisionError{}); errors.As(err, &r) {
			if consistency == storage.StrongConsistency {
				return r.error
			}
			consistency = storage.StrongConsistency
			continue
		}
		if versioned || failures == len(retryPauses) || !errors.Is(err, storage.ErrCASFailure) {
			return err
		}
		pause := retryPauses[failures]
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause + rand.N(pause/2)):
		}
		consistency = storage.StrongConsistency
		failures++
	}
}
