package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// A process that was suspended for long, or whose request was delayed, must not write to a target that another process has
// continued, and perhaps completed. If the target is a driver.GuardedMover, each write is conditional on a note that a new process
// writes first: this needs no clock, and no request is too late to be refused. With other targets the process reads its own clocks
// before each attempt: it writes only while its last heartbeat is too young for others to take over. A request that leaves in time
// and is applied after that time is not stopped.

const (
	// takeoverTime is how long a process that wants to continue a migration waits for heartbeats.
	takeoverTime = 3 * time.Second
	// leaseTime is how long a heartbeat allows writes. The difference to takeoverTime is for clocks with different rates.
	leaseTime = 2 * time.Second
)

// attemptContext returns a context for one attempt to change the target, or ErrSuperseded.
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
	// One of the writers renews for all.
	j.renewing.Lock()
	defer j.renewing.Unlock()
	if j.fresh() {
		return ctx, nil
	}
	return ctx, j.confirm(ctx)
}

// fresh reports whether the last heartbeat allows writes.
func (j *journal) fresh() bool { return j.quiet() < j.lease }

// quiet returns the time since the last heartbeat.
func (j *journal) quiet() time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	return age(j.heartbeatSentAt)
}

// takeGuard makes all guarded writes in flight fail, by other processes and by this process, and allows new writes of this
// process. It reads the note's revision before it confirms that the migration is this process's. If another process takes over
// after that, it either finds the note written here, and writes it again, or it has already written it and takeGuard fails.
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
				continue // another process's, or our own whose answer was lost
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

// dropGuard makes all guarded writes in flight fail, when nothing is left to write. If dropGuard itself fails, these writes are
// this process's own. The note stays: without it, a process that was suspended in takeGuard would find the same state as before.
func (j *journal) dropGuard(ctx context.Context) {
	if j == nil || !j.targetGuards {
		return
	}
	j.mu.Lock()
	guard := j.guard
	j.mu.Unlock()
	_, _ = j.store.WriteNote(ctx, guardNote, nil, guard)
}
