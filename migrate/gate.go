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
	role        string // "source" or "target"
	store       driver.Mover
	guarded     driver.GuardedMover // nil if the store is none
	fence       driver.Fence        // with which the store is closed for this migration
	try         retrier
	mine        func(ctx context.Context) error         // checks that the migration is this process's: ErrSuperseded
	stillWanted func(ctx context.Context) (bool, error) // reports whether another process needs the source closed
}

// errElsewhere means that another migration has closed the source. Only that migration may open it.
var errElsewhere = errors.New("the source is closed for another migration")

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
	if g.guarded != nil {
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

// owns reports whether a fence is that of this migration. The target of one migration has no other that admits the tool.
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
			if g.guarded == nil {
				var target *string
				if fence != nil {
					target = &fence.Target
				}
				return g.store.SetFence(ctx, target)
			}
			next, err = g.guarded.SetFenceAt(ctx, fence, s.Epoch)
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
			case g.guarded == nil:
				return g.mine(ctx) // such a store has no place for it
			case epoch != "" && s.Epoch != epoch:
				return errOpened
			}
			if err := g.mine(ctx); err != nil {
				return err
			}
			if _, err = g.guarded.SetFenceAt(ctx, &fence, s.Epoch); !errors.Is(err, storage.ErrCASFailure) {
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
	return err == nil && s.Closed && g.owns(s.Fence) && (g.guarded == nil || s.Epoch == epoch), err
}

// A program that writes to the target too early would lose its writes: the migration reverts or deletes them. So the target's fence
// admits only writes with the guard of the tool, from before the tool's first write until the migration is complete.
//
//	Preparing   the target is closed; then it is proven to be empty, if it must be
//	…           the tool writes
//	Opening     the two sides are equal; the guard is dropped, and the target is opened

// newTargetGate returns the gate of the target, or nil if its fence cannot admit the tool.
func (m *migration) newTargetGate() *gate {
	if m.journal == nil || !m.journal.targetGuards {
		return nil
	}
	g := &gate{
		role: "target", store: m.target, fence: driver.Fence{Target: m.journal.current().From, Admits: guardNote},
		try: m.try, mine: m.journal.confirm,
	}
	g.guarded, _ = storage.As[driver.GuardedMover](m.to)
	return g
}

// TargetContext returns a context for opening the target of a migration from a source of that display name. If the target is created, it
// is closed for other writers from the beginning. Otherwise Run closes it, which takes 16 minutes with DynamoDB.
func TargetContext(ctx context.Context, from string) context.Context {
	return driver.WithNewStoreFence(ctx, driver.Fence{Target: legible(from), Admits: guardNote})
}

// prepareTarget closes the target for other writers. With DynamoDB this takes 16 minutes, unless the table is new.
func (m *migration) prepareTarget(ctx context.Context) (err error) {
	if m.targetGate == nil || m.journal.current().Phase == Opening {
		return nil
	}
	m.stats.enter(m.journal.current().Phase)
	if m.targetEpoch, err = m.targetGate.close(ctx); err != nil {
		return err
	}
	now := m.journal.current()
	if now.Phase != Preparing {
		return nil
	}
	if now.Into == Empty {
		empty, err := isEmpty(ctx, m.to, m.try)
		if err != nil {
			return fmt.Errorf("target: %w", err)
		}
		if !empty {
			err := m.enter(ctx, phaseAborted, "")
			return errors.Join(ErrNotEmpty, err, m.targetGate.open(ctx))
		}
	}
	return m.enter(ctx, Copying, now.Cursor)
}

// errTargetOpened means that another program has opened the target before the end of the migration.
var errTargetOpened = errors.New("another program opened the target for writing during the migration")

// targetIsClosed returns an error if the target has not stayed closed for other writers.
func (m *migration) targetIsClosed(ctx context.Context) error {
	if m.targetGate == nil {
		return nil
	}
	closed, err := m.targetGate.isClosed(ctx, m.targetEpoch)
	if err == nil && !closed {
		err = errTargetOpened
	}
	return err
}

// openTarget opens the target for all writers, and records the last phase. The tool has nothing left to write.
func (m *migration) openTarget(ctx context.Context, last Phase) error {
	if m.journal == nil {
		return nil
	}
	m.journal.dropGuard(ctx)
	if m.targetGate != nil {
		if err := m.targetGate.open(ctx); err != nil {
			return err
		}
	}
	return m.enter(ctx, last, "")
}
