package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// copyOnce copies the source's contents, and compares.
func (m *migration) copyOnce(ctx context.Context, r *Result) error {
	if m.journal != nil && m.journal.current().Phase == Opening {
		return m.openTarget(ctx, phaseComplete)
	}
	began := time.Now()
	if _, err := m.copyAll(ctx); err != nil {
		return err
	}
	r.CopyTime = time.Since(began)
	source, err := m.listSource(ctx)
	if err != nil {
		return err
	}
	defer source.close()
	if r.Report, err = m.compare(ctx, source, nil, nil); err != nil {
		return err
	}
	if !m.isComplete(r.Report) {
		return fmt.Errorf("%w after the copy (was the source changed meanwhile?): %v", ErrDiffers, r.Report)
	}
	if err := m.targetIsClosed(ctx); err != nil {
		return err
	}
	if m.targetGate != nil {
		if err := m.enter(ctx, Opening, ""); err != nil {
			return err
		}
	}
	return m.openTarget(ctx, phaseComplete)
}

// copyAll makes the target equal to a state of the source during the call, and returns the position where the following phase must
// begin.
func (m *migration) copyAll(ctx context.Context) (cursor string, err error) {
	for pass := 1; ; pass++ {
		m.stats.enter(Copying)
		cursor, err = m.copyPass(ctx)
		if err == nil || !errors.Is(err, storage.ErrCompacted) || pass == maxPasses {
			return cursor, err
		}
		// The store dropped a listing because it took too long. The resources copied so far are there, so the next pass is faster.
		m.stats.warn(err)
	}
}

func (m *migration) copyPass(ctx context.Context) (cursor string, err error) {
	began := time.Now()
	source, err := m.listSource(ctx)
	if err != nil {
		return "", err
	}
	defer source.close()
	cursor = source.cursor
	if m.journal != nil && !m.o.Into.prunes() {
		// Only the changes after the first listing distinguish resources that the source has deleted since from earlier contents of
		// the target.
		if first := m.journal.current().Cursor; first != "" {
			cursor = first
		} else if err := m.noteCursor(ctx, cursor); err != nil {
			return "", err
		}
	}
	_, err = m.pass(ctx, source, m.conflictDuringCopy, new(int))
	if err == nil && m.o.Into.prunes() {
		m.comparePasses++
		m.stats.countFollowed(began) // everything before it is in the target now
	}
	return cursor, err
}

// live copies, follows and cuts over, beginning with the phase in the journal.
func (m *migration) live(ctx context.Context, r *Result) error {
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
			next, cursor, err := m.followOn(ctx, s.Cursor, &lost)
			if err != nil {
				return err
			}
			if err := m.enter(ctx, next, cursor); err != nil {
				return err
			}
		case Cutover:
			return m.cutover(ctx, r)
		case Opening:
			return m.complete(ctx, "")
		default:
			return fmt.Errorf("the target's journal is in an unknown phase %q", s.Phase)
		}
	}
}

// followOn follows the source's changes until another phase is due.
func (m *migration) followOn(ctx context.Context, cursor string, lost *int) (next Phase, at string, err error) {
	if took := age(m.stats.asOfNow()); m.o.CutoverLag > 0 {
		switch {
		case took < m.o.CutoverLag:
			return Cutover, cursor, nil
		case m.hasBookmarks:
			// The following phase proves it.
		case m.comparePasses < maxPasses:
			return Copying, "", nil
		case m.o.Cutover == nil:
			return "", "", fmt.Errorf("%w: the source cannot prove that the target is less than %v behind, other than by comparing both "+
				"sides, which takes longer (%v): allow a longer lag, or start the cutover yourself", ErrUnsupported, m.o.CutoverLag, took.Round(time.Millisecond))
		}
	}
	before := m.stats.events.Load()
	at, err = m.follow(ctx, cursor, m.stats.asOfNow(), m.cutoverWanted)
	if !errors.Is(err, storage.ErrCompacted) {
		return Cutover, at, err
	}
	if !m.o.Into.prunes() {
		return "", "", m.historyLost(err)
	}
	if *lost++; m.stats.events.Load() > before {
		*lost = 1
	}
	if *lost >= maxPasses {
		return "", "", fmt.Errorf("the source deletes its history faster than it can be listed; raise its retention: %w", err)
	}
	// Only a comparison shows the changes. It costs a listing of both sides.
	m.stats.warn(fmt.Errorf("the source's history was deleted, comparing both sides again: %w", err))
	return Copying, "", nil
}

// cutoverWanted reports whether the following phase should end.
func (m *migration) cutoverWanted(f *follower) bool {
	select {
	case <-m.o.Cutover:
		return true
	default:
	}
	return m.o.CutoverLag > 0 && f.lag() < m.o.CutoverLag
}

// canProve determines how the end of a live migration is proven, and refuses a migration whose end cannot be. If a watch of the
// source is a storage.Bookmarker, the watch proves that the last change has arrived. Otherwise a comparison proves that both sides
// are equal. If the target has other contents as well, the sides are not supposed to be equal, and nothing distinguishes those
// contents from resources that the source has deleted.
func (m *migration) canProve(ctx context.Context, into Into) error {
	var watch storage.Watch
	err := m.try.do(ctx, "watch", func(ctx context.Context) (err error) {
		watch, err = m.from.WatchList(ctx, nothingAtAll, &resourcepb.Tenancy{}, "")
		return err
	})
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	_, m.hasBookmarks = watch.(storage.Bookmarker)
	watch.Close()
	if m.hasBookmarks || into.prunes() {
		return nil
	}
	return fmt.Errorf("%w: a live migration into a target that keeps other contents (Merge, Overwrite) needs a source whose watches "+
		"can prove that they have returned every deletion (storage.Bookmarker); this source has none, so resources that it deletes meanwhile "+
		"would stay in the target. Use an empty target, or Mirror, or stop the programs that write to the source and copy once "+
		"without following", ErrUnsupported)
}
