package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// cutover closes the source, transfers the rest, and opens the target. The last pass is the proof: it compares both sides
// completely, after the last write to the source and after the last write of any tool to the target, and finds no difference.
//
// If the cutover fails, the source is opened again. If the caller has cancelled it, the source stays closed until the cutover is
// completed or aborted.
func (m *migration) cutover(ctx context.Context, r *Result) error {
	began := time.Now()
	m.closed.Store(true) // possibly: the outcome of the request is not known yet
	epoch, err := m.bringRest(ctx, r)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, ErrSuperseded) {
			return err
		}
		return m.reopen(ctx, err)
	}
	err = m.journal.change(ctx, func(s *state) {
		s.Phase, s.Resources, s.Digest = Opening, r.Report.Target, r.Report.TargetDigest
	})
	if err != nil {
		return err
	}
	if err := m.complete(ctx, epoch); err != nil {
		return err
	}
	r.FenceTime = time.Since(began)
	return nil
}

// complete records in the source that it has moved, opens the target, and completes the migration. epoch is that of the source's fence,
// "" if a previous process has closed the source.
func (m *migration) complete(ctx context.Context, epoch string) error {
	m.journal.dropGuard(ctx)
	err := m.recordMove(ctx, epoch)
	switch {
	case errors.Is(err, errOpened):
		if used, stateErr := m.targetWasOpened(ctx); used || stateErr != nil {
			return errors.Join(err, stateErr)
		}
		return m.reopen(ctx, err)
	case err != nil:
		return err
	}
	if err := m.openTarget(ctx, Complete); err != nil {
		return err
	}
	m.stats.enter(Complete)
	return nil
}

// recordMove adds to the source's fence that the store has moved, and a cursor of the target. The target is still closed, and the tool
// writes no more, so the cursor is the position after the copied state. If a user has opened the source, without writing the journal,
// the error is errOpened.
func (m *migration) recordMove(ctx context.Context, epoch string) error {
	fence := m.gate.fence
	fence.Moved = true
	var err error
	if fence.Identity, err = identity(ctx, m.target, m.try, false); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if _, resumes := storage.As[storage.Resumer](m.to); resumes {
		if fence.Cursor, err = m.endCursor(ctx); err != nil {
			return fmt.Errorf("target: %w", err)
		}
	}
	return m.gate.move(ctx, fence, epoch)
}

// endCursor returns a cursor of the target after the copied state. It is that of a new watch, which DynamoDB proves to be after all earlier
// changes, unlike the cursor of a page.
func (m *migration) endCursor(ctx context.Context) (cursor string, err error) {
	err = m.try.do(driver.WithExactCursor(ctx), "watch", func(ctx context.Context) error {
		w, err := m.to.WatchList(ctx, nothingAtAll, &resourcepb.Tenancy{}, "")
		if err != nil {
			return err
		}
		defer w.Close()
		if _, err := w.Next(ctx); err != nil { // the end of the empty snapshot
			return err
		}
		cursor = w.Cursor()
		return nil
	})
	return cursor, err
}

// bringRest closes the source and completes the target. It returns the epoch of the fence.
func (m *migration) bringRest(ctx context.Context, r *Result) (epoch string, err error) {
	if epoch, err = m.gate.close(ctx); err != nil {
		return "", err
	}
	renewed := new(int) // nil once every resource with a time to live was written to the target after its last write in the source
	if m.hasBookmarks {
		err := m.drain(ctx)
		if err == nil {
			renewed = nil
		}
		// If the target must equal the source, the passes transfer the rest and prove the equality.
		if err != nil && (!m.o.Into.prunes() || !errors.Is(err, storage.ErrCompacted)) {
			return "", err
		}
	}
	for pass := 1; ; pass++ {
		// Delayed writes of this process are applied before the comparison or not at all.
		if err := m.journal.takeGuard(ctx); err != nil {
			return "", err
		}
		r.Report, err = m.lastPass(ctx, renewed)
		if err != nil && (!errors.Is(err, storage.ErrCompacted) || pass >= maxPasses) {
			return "", err
		}
		if err == nil && m.isComplete(r.Report) && (renewed == nil || *renewed == 0) {
			break
		}
		if err == nil {
			renewed = nil
		}
		if pass >= maxPasses {
			return "", fmt.Errorf("%w even after the source was closed; is another program writing to the target? %v", ErrDiffers, r.Report)
		}
	}
	closed, err := m.gate.isClosed(ctx, epoch)
	if err == nil && !closed {
		err = errOpened
	}
	if err == nil {
		err = m.targetIsClosed(ctx)
	}
	return epoch, err
}

// reopen opens the source for writers after a cutover that cannot be completed. The journal is written afterwards: until then, the
// same call closes the source again, which is equally valid.
func (m *migration) reopen(ctx context.Context, cause error) error {
	if err := m.gate.open(ctx); err != nil {
		if errors.Is(err, errElsewhere) {
			m.closed.Store(false) // by this migration
		}
		return errors.Join(cause, fmt.Errorf("open the source again for writing: %w", err))
	}
	m.closed.Store(false)
	cursor := m.journal.current().Cursor
	return errors.Join(fmt.Errorf("the source is open for writing again: %w", cause), m.enter(ctx, Following, cursor))
}

// drain applies all changes that were made before the source was closed; a bookmark proves that none is missing.
func (m *migration) drain(ctx context.Context) error {
	cursor, err := m.follow(ctx, m.journal.current().Cursor, time.Time{}, (*follower).hasBaseline)
	if errors.Is(err, storage.ErrCompacted) && !m.o.Into.prunes() {
		return m.historyLost(err)
	}
	if err != nil {
		return err
	}
	return m.noteCursor(ctx, cursor)
}

func (m *migration) lastPass(ctx context.Context, renewed *int) (*Report, error) {
	source, err := m.listSource(ctx)
	if err != nil {
		return nil, err
	}
	defer source.close()
	m.stats.listing()
	return m.pass(ctx, source, m.conflictAtCutover, renewed)
}
