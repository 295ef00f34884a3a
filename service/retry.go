package service

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/ashlar-dev/storage"
)

// retryPauses are the pauses between the tries of a write that names no version and was overtaken by another one; each is up to half as long
// again. They are those of the API that this one is compatible with.
var retryPauses = []time.Duration{75 * time.Millisecond, 150 * time.Millisecond, 300 * time.Millisecond, 600 * time.Millisecond}

// decisionError is an error that follows from what was read.
type decisionError struct{ error }

// Unwrap returns the error.
func (r decisionError) Unwrap() error { return r.error }

// retryConflicts calls try, which reads and then writes. What an eventual read made it refuse is only believed of a strong one. If another
// write came in between, and the caller named no version, there are five tries.
func retryConflicts(ctx context.Context, versioned bool, try func(storage.ReadConsistency) error) error {
	consistency := storage.EventualConsistency
	for failures := 0; ; {
		err := try(consistency)
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
