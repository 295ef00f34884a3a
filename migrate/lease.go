package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// A process that was frozen for long, or whose request was held up on the way, must not write to a target that another process
// has gone on with, and perhaps completed. Where the target is a driver.GuardedMover, each write depends on a note that whoever
// takes over writes first: no clock is asked, and no request is too late to be refused. Elsewhere the process looks at its own
// clocks before each attempt: it writes only while its last sign of life is younger than the time for which others wait before
// they take over. A request that leaves in time and is carried out after that time is not held back there.

const (
	// takeoverTime is how long a process that wants to go on with a migration looks for signs of life.
	takeoverTime = 3 * time.Second
	// leaseTime is how long a sign of life allows to write. The rest is for clocks that go at different speeds.
	leaseTime = 2 * time.Second
)

// attemptContext returns a context for one attempt to change the target, or ErrTakenOver.
func (j *journal) attemptContext(ctx context.Context) (context.Context, error) {
	if j == nil {
		return ctx, nil
	}
	if j.targetGuards {
		j.mu.Lock()
		defer j.mu.Unlock()
		return driver.WithGuard(ctx, driver.Guard{Note: guardNote, Revision: j.guard}), nil
	}
	if j.fresh() {
		return ctx, nil
	}
	// One of the writers asks for all of them.
	j.renewing.Lock()
	defer j.renewing.Unlock()
	if j.fresh() {
		return ctx, nil
	}
	return ctx, j.confirm(ctx)
}

// fresh reports whether the last sign of life allows to write.
func (j *journal) fresh() bool { return j.quiet() < j.lease }

// quiet is how long ago the last sign of life was given.
func (j *journal) quiet() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return age(j.heartbeatSentAt)
}

// age returns how long ago a moment was, by the monotonic clock or by the clock on the wall, whichever says more: the former
// stands still while the machine sleeps.
func age(at time.Time) time.Duration {
	now := time.Now()
	return max(now.Sub(at), now.Round(0).Sub(at.Round(0)))
}

// takeGuard makes all guarded writes that are under way fail, those of others and those of this process, and lets this process
// write again. The note's revision is read before the migration is found to be this process's: if another process takes over
// after that, it either finds the note as written here, and writes it once more, or it has written it already and this fails.
func (j *journal) takeGuard(ctx context.Context) error {
	if j == nil || !j.targetGuards {
		return nil
	}
	err := j.try.do(ctx, "guard the writes", func(ctx context.Context) error {
		for {
			_, revision, err := j.store.ReadNote(ctx, guardNote)
			if err != nil {
				return err
			}
			if err := j.confirm(ctx); err != nil {
				return err
			}
			revision, err = j.store.WriteNote(ctx, guardNote, []byte(j.current().Run), revision)
			if errors.Is(err, storage.ErrCASFailure) {
				continue // somebody else's, or our own whose answer was lost
			}
			if err == nil {
				j.mu.Lock()
				j.guard = revision
				j.mu.Unlock()
			}
			return err
		}
	})
	if err != nil {
		return fmt.Errorf("journal in the target: %w", err)
	}
	return nil
}

// dropGuard makes all guarded writes fail that are still under way, when nothing is left to write. Should it fail itself, they are
// this process's own. The note stays: removed, it would be to a process that was frozen in takeGuard what it was before.
func (j *journal) dropGuard(ctx context.Context) {
	if j == nil || !j.targetGuards {
		return
	}
	j.mu.Lock()
	guard := j.guard
	j.mu.Unlock()
	_, _ = j.store.WriteNote(ctx, guardNote, nil, guard)
}
