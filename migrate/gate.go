package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/handover"
)

// gate closes and opens a migration's source.
//
// A process may be frozen at any point, and go on when others have aborted the migration, or completed it. Where the source is
// a handover.EpochFencer it does no harm: it reads the fence's epoch, then makes sure that the migration is its own, and closes
// or opens the source only at that epoch. Whoever takes the migration over, or aborts it, writes the journal first and gives
// the fence another epoch afterwards. Elsewhere there is a moment between the look at the journal and the change of the fence,
// and the process looks once more after it.
type gate struct {
	source handover.Fencer
	epochs handover.EpochFencer // nil where the source has none
	target string               // the name under which the source is closed for this migration
	try    retrier
	mine   func(ctx context.Context) error         // makes sure that the migration is this process's: ErrTakenOver
	wanted func(ctx context.Context) (bool, error) // reports whether another process has a use for a closed source
}

// errElsewhere says that the source was closed for another migration, whose business it is to open it.
var errElsewhere = errors.New("the source is closed for another migration")

// state reads the fence.
func (g *gate) state(ctx context.Context) (s handover.FenceState, err error) {
	err = g.try.do(ctx, "look at the fence", func(ctx context.Context) (err error) {
		s, err = fenceState(ctx, g.source, g.epochs)
		return err
	})
	if err != nil {
		return s, fmt.Errorf("source: %w", err)
	}
	return s, nil
}

// fenceState reads a fence, with its epoch where it has one.
func fenceState(ctx context.Context, store handover.Fencer, epochs handover.EpochFencer) (s handover.FenceState, err error) {
	if epochs != nil {
		return epochs.FenceState(ctx)
	}
	s.Target, s.Closed, err = store.Fenced(ctx)
	return s, err
}

// close closes the source and returns the fence's epoch. Where it is closed already, it gets another epoch: a process that has
// closed it before, and has been taken over, cannot open it any more.
func (g *gate) close(ctx context.Context) (epoch string, err error) {
	if g.epochs != nil {
		return g.change(ctx, "close", func(ctx context.Context, epoch string) (string, error) {
			return g.epochs.FenceAt(ctx, g.target, epoch)
		})
	}
	sent := false
	_, err = g.change(ctx, "close", func(ctx context.Context, _ string) (string, error) {
		sent = true
		return "", g.source.Fence(ctx, g.target)
	})
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
	if wanted, err := g.wanted(ctx); wanted || err != nil {
		return err
	}
	if s, err := g.state(ctx); err != nil || g.elsewhere(s) != nil {
		return err
	}
	return g.source.Unfence(ctx)
}

// elsewhere is the error of a source that is closed for another migration.
func (g *gate) elsewhere(s handover.FenceState) error {
	if !s.Closed || s.Target == g.target {
		return nil
	}
	return fmt.Errorf("%w, which is in use (%s)", errElsewhere, s.Target)
}

// open opens the source, if it is closed for this migration.
func (g *gate) open(ctx context.Context) error {
	_, err := g.change(ctx, "open", func(ctx context.Context, epoch string) (string, error) {
		if g.epochs == nil {
			return "", g.source.Unfence(ctx)
		}
		return g.epochs.UnfenceAt(ctx, epoch)
	})
	return err
}

func (g *gate) change(ctx context.Context, what string, change func(ctx context.Context, epoch string) (string, error)) (next string, err error) {
	for {
		// Each attempt looks anew: another migration may have closed the source while the last one was under way.
		err = g.try.do(ctx, what+" the source", func(ctx context.Context) error {
			s, err := fenceState(ctx, g.source, g.epochs)
			if err == nil {
				err = g.elsewhere(s)
			}
			if err == nil {
				err = g.mine(ctx)
			}
			if err == nil {
				next, err = change(ctx, s.Epoch)
			}
			return err
		})
		switch {
		case errors.Is(err, storage.ErrCASFailure):
			continue // somebody else, or ourselves with an answer that was lost
		case err != nil:
			return "", fmt.Errorf("source: %w", err)
		}
		return next, nil
	}
}

// stands reports whether the source is still closed as close has left it, without having been open in between.
func (g *gate) stands(ctx context.Context, epoch string) (bool, error) {
	s, err := g.state(ctx)
	return err == nil && s.Closed && s.Target == g.target && s.Epoch == epoch, err
}
