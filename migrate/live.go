package migrate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/resourcepb"
)

// maxPasses is how often a listing, or the history after it, may get lost before we give up.
const maxPasses = 6

// copyOnce brings over what the source holds, and compares.
func (m *migration) copyOnce(ctx context.Context, r *Result) error {
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
	if !m.isComplete(r.Report) {
		return fmt.Errorf("%w after the copy (was the source written to meanwhile?): %v", ErrDiffers, r.Report)
	}
	return m.journal.end(ctx)
}

// isComplete reports whether the target holds what it should.
func (m *migration) isComplete(r *Report) bool {
	if m.o.Into.prunes() {
		return r.Equal()
	}
	return r.Missing == 0 && r.Different == 0
}

// copyAll makes the target hold what the source holds at some moment during the call, and returns the position from which the
// changes since are to be followed.
func (m *migration) copyAll(ctx context.Context) (cursor string, err error) {
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

func (m *migration) copyPass(ctx context.Context) (cursor string, err error) {
	began := time.Now()
	source, err := m.listSource(ctx)
	if err != nil {
		return "", err
	}
	defer source.close()
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
	_, err = m.pass(ctx, source, m.conflictDuringCopy)
	if err == nil && m.o.Into.prunes() {
		m.comparePasses++
		m.stats.countFollowed(began) // whatever happened before it is in the target now
	}
	return cursor, err
}

// live copies, follows and cuts over, from the phase that the journal says.
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
		case CuttingOver:
			return m.cutOver(ctx, r)
		default:
			return fmt.Errorf("the target's journal is in an unknown phase %q", s.Phase)
		}
	}
}

// followOn follows the source's changes until it is time for another phase.
func (m *migration) followOn(ctx context.Context, cursor string, lost *int) (next Phase, at string, err error) {
	if took := age(m.stats.asOfNow()); m.o.CutoverLag > 0 {
		switch {
		case took < m.o.CutoverLag:
			return CuttingOver, cursor, nil
		case m.marks:
			// Following proves it.
		case m.comparePasses < maxPasses:
			return Copying, "", nil
		case m.o.Cutover == nil:
			return "", "", fmt.Errorf("%w: the source cannot prove that the target is less than %v behind, other than by comparing both "+
				"sides, which takes longer (%v): allow for a longer lag, or say when to cut over", ErrUnsupported, m.o.CutoverLag, took.Round(time.Millisecond))
		}
	}
	before := m.stats.applied.Load()
	at, err = m.follow(ctx, cursor, m.stats.asOfNow(), m.cutoverWanted)
	if !errors.Is(err, storage.ErrCompacted) {
		return CuttingOver, at, err
	}
	if !m.o.Into.prunes() {
		return "", "", m.historyLost(err)
	}
	if *lost++; m.stats.applied.Load() > before {
		*lost = 1
	}
	if *lost >= maxPasses {
		return "", "", fmt.Errorf("the source forgets its history faster than it can be listed; let it keep more: %w", err)
	}
	// Only a comparison tells what has changed. It costs a listing of both sides.
	m.stats.warn(fmt.Errorf("the source's history is gone, comparing both sides anew: %w", err))
	return Copying, "", nil
}

// errStuck says that the same call can only fail again: the migration has to be aborted, and begun anew.
var errStuck = errors.New("this migration has to be aborted, and another begun, preferably into an empty store")

// historyLost is the error of a migration into a target with other contents when the source's history is gone.
func (m *migration) historyLost(err error) error {
	return fmt.Errorf("%w; what was deleted from the source meanwhile can not be told from what else is in the target: %w", err, errStuck)
}

// cutoverWanted reports whether it is time to end the following.
func (m *migration) cutoverWanted(f *follower) bool {
	select {
	case <-m.o.Cutover:
		return true
	default:
	}
	return m.o.CutoverLag > 0 && f.lag() < m.o.CutoverLag
}

// canProve finds out how the end of a live migration is to be proven, and refuses one whose end cannot be. Where a watch of the
// source is a storage.Bookmarker, the watch proves that the last change has come. Where it is none, a comparison of both sides
// proves that they are equal; but where the target holds other things as well, equal is not what they are to be, and nothing
// tells those from what the source has deleted.
func (m *migration) canProve(ctx context.Context, into Into) error {
	var watch storage.Watch
	err := m.try.do(ctx, "watch", func(ctx context.Context) (err error) {
		watch, err = m.from.WatchList(ctx, nothingAtAll, &resourcepb.Tenancy{}, "")
		return err
	})
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	_, m.marks = watch.(storage.Bookmarker)
	watch.Close()
	if m.marks || into.prunes() {
		return nil
	}
	return fmt.Errorf("%w: a live migration into a target that keeps other contents (Merge, Overwrite) needs a source whose watches "+
		"can prove that they have shown every deletion (storage.Bookmarker), and those of this source cannot: what it deletes meanwhile "+
		"would stay in the target. Use an empty target, or Mirror, or stop the programs that write to the source and copy once "+
		"without following", ErrUnsupported)
}
