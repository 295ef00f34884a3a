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
// A process may be suspended at any point, and resume after others have aborted or completed the migration. If the source is a
// driver.GuardedMover, it does no harm: it reads the fence's epoch, then checks that the migration is its own, and closes or opens
// the source only at that epoch. A process that takes the migration over, or aborts it, writes the journal first and changes the
// fence's epoch afterwards. With other sources there is a moment between the read of the journal and the change of the fence, and
// the process reads the journal again after it.
type gate struct {
	source        driver.Mover
	guardedSource driver.GuardedMover // nil if the source is none
	target        string              // the name under which the source is closed for this migration
	try           retrier
	mine          func(ctx context.Context) error         // checks that the migration is this process's: ErrSuperseded
	stillWanted   func(ctx context.Context) (bool, error) // reports whether another process needs the source closed
}

// errElsewhere means that another migration has closed the source. Only that migration may open it.
var errElsewhere = errors.New("the source is closed for another migration")

// state reads the fence.
func (g *gate) state(ctx context.Context) (s driver.FenceState, err error) {
	err = g.try.do(ctx, "read the fence", func(ctx context.Context) (err error) {
		s, err = g.source.Fence(ctx)
		return err
	})
	if err != nil {
		return s, fmt.Errorf("source: %w", err)
	}
	return s, nil
}

// close closes the source and returns the fence's epoch. A closed source gets another epoch: a process that closed it before, and
// was taken over, cannot open it any more.
func (g *gate) close(ctx context.Context) (epoch string, err error) {
	epoch, sent, err := g.change(ctx, "close", &g.target)
	if g.guardedSource != nil {
		return epoch, err
	}
	if err == nil {
		err = g.mine(ctx)
	}
	if sent && errors.Is(err, ErrSuperseded) {
		err = errors.Join(err, g.undo(ctx))
	}
	return "", err
}

// undo opens a source that this process has closed, or may have closed, after others had opened it.
func (g *gate) undo(ctx context.Context) error {
	if wanted, err := g.stillWanted(ctx); wanted || err != nil {
		return err
	}
	if s, err := g.state(ctx); err != nil || g.elsewhere(s) != nil {
		return err
	}
	return g.source.SetFence(ctx, nil)
}

// elsewhere returns the error of a source that is closed for another migration.
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

// change sets the fence, unless the source is closed for another migration. It returns the next epoch, and whether it has sent a
// change.
func (g *gate) change(ctx context.Context, what string, target *string) (next string, sent bool, err error) {
	for {
		// Each attempt reads the fence again: another migration may have closed the source during the previous one.
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
			continue // another process, or this one in an attempt whose answer was lost
		case err != nil:
			return "", sent, fmt.Errorf("source: %w", err)
		}
		return next, sent, nil
	}
}

// isClosed reports whether the source has stayed closed since close.
func (g *gate) isClosed(ctx context.Context, epoch string) (bool, error) {
	s, err := g.state(ctx)
	return err == nil && s.Closed && s.Target == g.target && (g.guardedSource == nil || s.Epoch == epoch), err
}
