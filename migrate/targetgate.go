package migrate

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

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
	g.guardedStore, _ = storage.As[driver.GuardedMover](m.to)
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
	// Programs could write to the target until now.
	switch refusal := m.checkContents(ctx, now.Into); {
	case errors.Is(refusal, ErrNotEmpty), errors.Is(refusal, ErrConflict):
		// The target is opened first: nothing would open the target of an aborted migration.
		if err = m.targetGate.open(ctx); err == nil {
			err = m.enter(ctx, phaseAborted, "")
		}
		return errors.Join(refusal, err)
	case refusal != nil:
		return refusal
	}
	return m.enter(ctx, Copying, now.Cursor)
}

// checkContents returns ErrNotEmpty or ErrConflict if the contents of the target do not permit the migration.
func (m *migration) checkContents(ctx context.Context, into Into) error {
	switch into {
	case Empty:
		empty, err := isEmpty(ctx, m.to, m.try)
		switch {
		case err != nil:
			return fmt.Errorf("target: %w", err)
		case !empty:
			return ErrNotEmpty
		}
	case Merge:
		l, err := m.listSource(ctx)
		if err != nil {
			return err
		}
		defer l.close()
		return m.preflight(ctx, l)
	}
	return nil
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

// errDiverged means that both stores accept writes, so neither can be made equal to the other without a loss.
var errDiverged = errors.New("the target has all contents and is open for writing: decide which of the two stores to keep")

// targetWasOpened reports whether the target of a migration in the phase Opening is open already, by a tool that was stopped right after, or by an
// operator. Programs may have written to it, so the migration must not follow the source again. It then records that the migration is complete.
func (m *migration) targetWasOpened(ctx context.Context) (bool, error) {
	if m.targetGate == nil {
		return false, nil
	}
	s, err := m.targetGate.state(ctx)
	if err != nil || s.Closed {
		return false, err
	}
	return true, errors.Join(errDiverged, m.enter(ctx, Complete, ""))
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
