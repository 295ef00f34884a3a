package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
)

// cutOver closes the source, brings over the rest, and opens the target. The last pass is the proof: it compares all of both
// sides, after the last write to the source and after the last write of any tool to the target, and has found nothing to do.
//
// If it cannot be completed, the source is opened again, unless the caller has ended it: then it waits, closed, to be completed.
func (m *migration) cutOver(ctx context.Context, r *Result) error {
	began := time.Now()
	m.closed.Store(true) // or not: who knows what becomes of a request
	epoch, err := m.bringRest(ctx, r)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, ErrTakenOver) {
			return err
		}
		return m.reopen(ctx, err)
	}
	before := m.journal.current()
	err = m.journal.change(ctx, func(s *state) {
		s.Phase, s.Cursor, s.Resources, s.Digest = Complete, "", r.Report.Target, r.Report.TargetDigest
	})
	if err != nil {
		return err
	}
	if m.openedByHand(ctx, epoch) {
		if err := m.enter(ctx, before.Phase, before.Cursor); err != nil {
			return errors.Join(errOpened, err)
		}
		return m.reopen(ctx, errOpened)
	}
	m.journal.dropGuard(ctx)
	r.Fenced = time.Since(began)
	m.stats.enter(Complete)
	return nil
}

// openedByHand reports whether somebody has opened the source before the migration was noted to be complete, who writes no journal
// and took this process for dead. Whoever does so later finds it complete. Where there is no answer, the look before counts.
func (m *migration) openedByHand(ctx context.Context, epoch string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	stands, err := m.gate.stands(ctx, epoch)
	return err == nil && !stands
}

// errOpened says that somebody else has opened the source while it was to be closed.
var errOpened = errors.New("another program opened the source for writing during the cutover")

// bringRest closes the source and makes the target hold what it should. It returns the epoch of the fence.
func (m *migration) bringRest(ctx context.Context, r *Result) (epoch string, err error) {
	if epoch, err = m.gate.close(ctx); err != nil {
		return "", err
	}
	if m.marks {
		err := m.drain(ctx)
		// Where the target is to be equal, the passes bring the rest, and prove it.
		if err != nil && (!m.o.Into.prunes() || !errors.Is(err, storage.ErrCompacted)) {
			return "", err
		}
	}
	for pass := 1; ; pass++ {
		// Writes of this process whose answers were lost, too, come before the comparison or not at all.
		if err := m.journal.takeGuard(ctx); err != nil {
			return "", err
		}
		r.Report, err = m.lastPass(ctx)
		if err != nil && (!errors.Is(err, storage.ErrCompacted) || pass >= maxPasses) {
			return "", err
		}
		if err == nil && m.isComplete(r.Report) {
			break
		}
		if pass >= maxPasses {
			return "", fmt.Errorf("%w even after the source was closed; does another program write to the target? %v", ErrDiffers, r.Report)
		}
	}
	stands, err := m.gate.stands(ctx, epoch)
	if err == nil && !stands {
		err = errOpened
	}
	return epoch, err
}

// reopen lets writers back to the source after a cutover that cannot be completed as things are. The journal follows: until it
// does, the same call closes the source again, which is as good.
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

// drain applies the changes that were made before the source was closed: all of them, which a bookmark proves.
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

func (m *migration) lastPass(ctx context.Context) (*Report, error) {
	source, err := m.listSource(ctx)
	if err != nil {
		return nil, err
	}
	defer source.close()
	m.stats.listing()
	return m.pass(ctx, source, m.conflictAtCutover)
}
