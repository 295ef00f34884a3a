package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
)

// maxPasses is how often a listing, or the history after it, may get lost before we give up.
const maxPasses = 6

// copyOnce brings over what the source holds, and compares.
func (m *mover) copyOnce(ctx context.Context, r *Result) error {
	began := time.Now()
	if _, err := m.copyAll(ctx); err != nil {
		return err
	}
	r.Copied = time.Since(began)
	source, err := m.listSource(ctx)
	if err != nil {
		return err
	}
	defer source.close()
	if r.Report, err = m.compare(ctx, source, nil); err != nil {
		return err
	}
	if !m.settled(r.Report) {
		return fmt.Errorf("%w after the copy (was the source written to meanwhile?): %v", ErrDiffers, r.Report)
	}
	// Nothing is left to go on with.
	return m.journal.remove(ctx)
}

// settled tells whether the target holds what it should.
func (m *mover) settled(r *Report) bool {
	if m.o.Into.prunes() {
		return r.Equal()
	}
	return r.Missing == 0 && r.Different == 0
}

// copyAll makes the target hold what the source holds at some moment during the call, and returns the position from which the
// changes since are to be followed.
func (m *mover) copyAll(ctx context.Context) (cursor string, err error) {
	for pass := 1; ; pass++ {
		m.stats.enter(Copying)
		cursor, err = m.copyPass(ctx)
		if err == nil || !errors.Is(err, storage.ErrCompacted) || pass == maxPasses {
			return cursor, err
		}
		// A listing was given up because we took too long over it. What has been copied is there, and the next pass is faster.
		m.stats.warn(err)
	}
}

func (m *mover) copyPass(ctx context.Context) (cursor string, err error) {
	source, err := m.listSource(ctx)
	if err != nil {
		return "", err
	}
	defer source.close()
	m.stats.listedAt(time.Now())
	cursor = source.cursor
	if m.journal != nil && !m.o.Into.prunes() {
		// What the source has deleted since the first listing can be told from what was in the target before only by the
		// changes after that listing.
		if first := m.journal.current().Cursor; first != "" {
			cursor = first
		} else if err := m.noteCursor(ctx, cursor); err != nil {
			return "", err
		}
	}
	_, err = m.pass(ctx, source, m.rivalBeforeTheEnd)
	return cursor, err
}

// live copies, follows and cuts over, from the phase that the journal says.
func (m *mover) live(ctx context.Context, r *Result) error {
	lost := 0
	for {
		s := m.journal.current()
		m.stats.enter(s.Phase)
		switch s.Phase {
		case Copying:
			cursor, err := m.copyAll(ctx)
			if err != nil {
				return err
			}
			if err := m.enter(ctx, Following, cursor); err != nil {
				return err
			}
		case Following:
			before := m.stats.applied.Load()
			cursor, err := m.follow(ctx, s.Cursor, m.cutoverWanted)
			if errors.Is(err, storage.ErrCompacted) {
				if !m.o.Into.prunes() {
					return fmt.Errorf("%w; what was deleted from the source meanwhile can not be told from what else is in the "+
						"target: abort this migration and begin again, preferably into an empty store", err)
				}
				if lost++; m.stats.applied.Load() > before {
					lost = 1
				}
				if lost >= maxPasses {
					return fmt.Errorf("the source forgets its history faster than it can be listed; let it keep more: %w", err)
				}
				// Only a comparison tells what has changed. It costs a listing of both sides.
				m.stats.warn(fmt.Errorf("the source's history is gone, comparing both sides anew: %w", err))
				if err := m.enter(ctx, Copying, ""); err != nil {
					return err
				}
				continue
			}
			if err != nil {
				return err
			}
			if err := m.enter(ctx, CuttingOver, cursor); err != nil {
				return err
			}
		case CuttingOver:
			return m.cutOver(ctx, r)
		default:
			return fmt.Errorf("the target's journal is in an unknown phase %q", s.Phase)
		}
	}
}

// cutoverWanted tells whether it is time to end the following.
func (m *mover) cutoverWanted(f *follower) bool {
	select {
	case <-m.o.Cutover:
		return true
	default:
	}
	return m.o.CutoverLag > 0 && f.lag() < m.o.CutoverLag
}

// cutOver closes the source, brings over the rest, and opens the target. The last pass is the proof: it compares all of both
// sides, after the last write to the source, and has found nothing to do.
func (m *mover) cutOver(ctx context.Context, r *Result) error {
	began := time.Now()
	err := m.try.do(ctx, "fence the source", func(ctx context.Context) error { return m.source.Fence(ctx, m.o.To) })
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if err := m.drain(ctx); err != nil {
		return err
	}
	for pass := 1; ; pass++ {
		r.Report, err = m.lastPass(ctx)
		if errors.Is(err, ErrConflict) {
			return m.reopen(ctx, err)
		}
		if err != nil && (!errors.Is(err, storage.ErrCompacted) || pass >= maxPasses) {
			return err
		}
		if err == nil && m.settled(r.Report) {
			break
		}
		if pass >= maxPasses {
			return fmt.Errorf("%w even after the source was closed; does another program write to the target? %v", ErrDiffers, r.Report)
		}
	}
	err = m.journal.change(ctx, func(s *state) {
		s.Phase, s.Cursor, s.Resources, s.Digest = Complete, "", r.Report.Target, r.Report.TargetDigest
	})
	if err != nil {
		return err
	}
	r.Fenced = time.Since(began)
	m.stats.enter(Complete)
	return nil
}

// reopen lets writers back to the source after a cutover that cannot be completed as things are.
func (m *mover) reopen(ctx context.Context, cause error) error {
	if err := m.source.Unfence(ctx); err != nil {
		return errors.Join(cause, fmt.Errorf("source: open it again for writing: %w", err))
	}
	cursor := m.journal.current().Cursor
	return errors.Join(fmt.Errorf("the source is open for writing again: %w", cause), m.enter(ctx, Following, cursor))
}

// drain applies the changes that were made before the source was closed.
func (m *mover) drain(ctx context.Context) error {
	quiet := time.Duration(0) // the last passes bring what is still missing
	if !m.o.Into.prunes() {
		quiet = m.o.Quiet // but not what was deleted
	}
	cursor, err := m.follow(ctx, m.journal.current().Cursor, func(f *follower) bool {
		return !f.quiet.IsZero() && time.Since(f.quiet) >= quiet
	})
	if err != nil && m.o.Into.prunes() && errors.Is(err, storage.ErrCompacted) {
		return nil
	}
	if err != nil {
		return err
	}
	return m.noteCursor(ctx, cursor)
}

func (m *mover) lastPass(ctx context.Context) (*Report, error) {
	source, err := m.listSource(ctx)
	if err != nil {
		return nil, err
	}
	defer source.close()
	m.stats.listing()
	return m.pass(ctx, source, m.rivalAtTheEnd)
}
