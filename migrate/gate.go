package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// gate closes and opens a store of a migration: the source for all writers at the cutover, or the target for all writers but the
// tool, until the migration is complete. Only a driver.GuardedMover can admit the tool, so other targets stay open.
//
// A process may be suspended at any point, and resume after others have aborted or completed the migration. If the source is a
// driver.GuardedMover, it does no harm: it reads the fence's epoch, then checks that the migration is its own, and closes or opens
// the source only at that epoch. A process that takes the migration over, or aborts it, writes the journal first and changes the
// fence's epoch afterwards. With other sources there is a moment between the read of the journal and the change of the fence, and
// the process reads the journal again after it.
type gate struct {
	role         string // "source" or "target"
	store        driver.Mover
	guardedStore driver.GuardedMover // nil if the store is none
	fence        driver.Fence        // with which the store is closed for this migration
	try          retrier
	mine         func(ctx context.Context) error         // checks that the migration is this process's: ErrSuperseded
	stillWanted  func(ctx context.Context) (bool, error) // reports whether another process needs the source closed
}

// state reads the fence.
func (g *gate) state(ctx context.Context) (s driver.FenceState, err error) {
	err = g.try.do(ctx, "read the fence", func(ctx context.Context) (err error) {
		s, err = g.store.Fence(ctx)
		return err
	})
	if err != nil {
		return s, fmt.Errorf("%s: %w", g.role, err)
	}
	return s, nil
}

// close closes the store and returns the fence's epoch. A closed store gets another epoch: a process that closed it before, and
// was taken over, cannot open it any more.
func (g *gate) close(ctx context.Context) (epoch string, err error) {
	epoch, sent, err := g.change(ctx, "close", &g.fence)
	if g.guardedStore != nil {
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
	return g.store.SetFence(ctx, nil)
}

// owns reports whether a fence belongs to this migration.
func (g *gate) owns(f driver.Fence) bool {
	return f.Admits == g.fence.Admits && (f.Admits != "" || f.Target == g.fence.Target)
}

// elsewhere returns the error of a store that is closed for another migration.
func (g *gate) elsewhere(s driver.FenceState) error {
	switch {
	case !s.Closed || g.owns(s.Fence):
		return nil
	case g.fence.Admits != "":
		return s.Refusal(nil)
	}
	return fmt.Errorf("%w, which is in use (%s)", errElsewhere, s.Target)
}

// open opens the store, if it is closed for this migration.
func (g *gate) open(ctx context.Context) error {
	_, _, err := g.change(ctx, "open", nil)
	return err
}

// change sets the fence, unless the store is closed for another migration. It returns the next epoch, and whether it has sent a
// change.
func (g *gate) change(ctx context.Context, what string, fence *driver.Fence) (next string, sent bool, err error) {
	for {
		// Each attempt reads the fence again: another migration may have closed the source during the previous one.
		err = g.try.do(ctx, what+" the "+g.role, func(ctx context.Context) error {
			s, err := g.store.Fence(ctx)
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
			if g.guardedStore == nil {
				var target *string
				if fence != nil {
					target = &fence.Target
				}
				return g.store.SetFence(ctx, target)
			}
			next, err = g.guardedStore.SetFenceAt(ctx, fence, s.Epoch)
			return err
		})
		switch {
		case errors.Is(err, storage.ErrCASFailure):
			continue // another process, or this one in an attempt whose answer was lost
		case err != nil:
			return "", sent, fmt.Errorf("%s: %w", g.role, err)
		}
		return next, sent, nil
	}
}

// move replaces the fence of a closed store by one that says that the store has moved, at an epoch unless it is "". If the store is not
// closed for this migration any more, the error is errOpened.
func (g *gate) move(ctx context.Context, fence driver.Fence, epoch string) error {
	err := g.try.do(ctx, "record the move", func(ctx context.Context) error {
		for {
			s, err := g.store.Fence(ctx)
			if err != nil {
				return err
			}
			switch {
			case !s.Closed || !g.owns(s.Fence):
				return errOpened
			case s.Moved:
				return nil // by this process in an attempt whose answer was lost, or by a previous process
			case g.guardedStore == nil:
				return g.mine(ctx) // such a store has no place for it
			case epoch != "" && s.Epoch != epoch:
				return errOpened
			}
			if err := g.mine(ctx); err != nil {
				return err
			}
			if _, err = g.guardedStore.SetFenceAt(ctx, &fence, s.Epoch); !errors.Is(err, storage.ErrCASFailure) {
				return err
			}
		}
	})
	if err != nil && !errors.Is(err, errOpened) {
		return fmt.Errorf("%s: %w", g.role, err)
	}
	return err
}

// isClosed reports whether the store has stayed closed since close.
func (g *gate) isClosed(ctx context.Context, epoch string) (bool, error) {
	s, err := g.state(ctx)
	return err == nil && s.Closed && g.owns(s.Fence) && (g.guardedStore == nil || s.Epoch == epoch), err
}
