package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// gate closes and opens a migration's source.
//
// A process may be frozen at any point, and go on when others have aborted the migration, or completed it. Where the source is
// a driver.GuardedMover it does no harm: it reads the fence's epoch, then makes sure that the migration is its own, and closes
// or opens the source only at that epoch. Whoever takes the migration over, or aborts it, writes the journal first and gives
// the fence another epoch afterwards. Elsewhere there is a moment between the look at the journal and the change of the fence,
// and the process looks once more after it.
type gate struct {
	source        driver.Mover
	guardedSource driver.GuardedMover // nil where the source is none
	target        string              // the name under which the source is closed for this migration
	try           retrier
	mine          func(ctx context.Context) error         // makes sure that the migration is this process's: ErrTakenOver
	stillWanted   func(ctx context.Context) (bool, error) // reports whether another process has a use for a closed source
}

// errElsewhere says that the source was closed for another migration, whose business it is to open it.
var errElsewhere = errors.New("the source is closed for another migration")

// state reads the fence.
func (g *gate) state(ctx context.Context) (s driver.FenceState, err error) {
	err = g.try.do(ctx, "look at the fence", func(ctx context.Context) (err error) {
		s, err = g.source.Fence(ctx)
		return err
	})
	if err != nil {
		return s, fmt.Errorf("source: %w", err)
	}
	return s, nil
}

// close closes the source and returns the fence's epoch. Where it is closed already, it gets another epoch: a process that has
// closed it before, and has been taken over, cannot open it any more.
func (g *gate) close(ctx context.Context) (epoch string, err error) {
	epoch, sent, err := g.change(ctx, "close", &g.target)
	if g.guardedSource != nil {
		return epoch, err
	}
	if err == nil {
		err = g.mine(ctx)
	}
	if sent && errors.Is(err, ErrTakenOver) {
		err = errors.Join(err, g.undo(ctx))
	}
	return "", err
}

// undo opens a source that this process has closed, or may have, after others had opened it.
func (g *gate) undo(ctx context.Context) error {
	if wanted, err := g.stillWanted(ctx); wanted || err != nil {
		return err
	}
	if s, err := g.state(ctx); err != nil || g.elsewhere(s) != nil {
		return err
	}
	return g.source.SetFence(ctx, nil)
}

// elsewhere is the error of a source that is closed for another migration.
func (g *gate) elsewhere(s driver.FenceState) error {
	if !s.Closed || s.Target == g.target {
		return nil
	}
	return fmt.Errorf("%w, which is in use (%s)", errElsewhere, s.Target)
}

// open opens the source, if it is closed for this migration.
func (g *gate) open(ctx context.Context) error {
	_, _, err := g.change(ctx, "open", nil)
	return err
}

// change sets the fence, unless the source is closed for another migration. It returns the next epoch, and whether it has asked for a
// change at all.
func (g *gate) change(ctx context.Context, what string, target *string) (next string, sent bool, err error) {
	for {
		// Each attempt looks anew: another migration may have closed the source while the last one was under way.
		err = g.try.do(ctx, what+" the source", func(ctx context.Context) error {
			s, err := g.source.Fence(ctx)
			if err == nil {
				err = g.elsewhere(s)
			}
			if err == nil {
				err = g.mine(ctx)
			}
			if err != nil {
				return err
			}
			sent = true
			if g.guardedSource == nil {
				return g.source.SetFence(ctx, target)
			}
			next, err = g.guardedSource.SetFenceAt(ctx, target, s.Epoch)
			return err
		})
		switch {
		case errors.Is(err, storage.ErrCASFailure):
			continue // somebody else, or ourselves with an answer that was lost
		case err != nil:
			return "", sent, fmt.Errorf("source: %w", err)
		}
		return next, sent, nil
	}
}

// stands reports whether the source is still closed as close has left it, without having been open in between.
func (g *gate) stands(ctx context.Context, epoch string) (bool, error) {
	s, err := g.state(ctx)
	return err == nil && s.Closed && s.Target == g.target && (g.guardedSource == nil || s.Epoch == epoch), err
}
