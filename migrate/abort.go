package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// Status is a store's record of the migration that it is the target of.
type Status struct {
	// From and To are the names of the stores.
	From, To string
	// Phase is the phase of the migration.
	Phase Phase
	// Live reports whether the migration follows the source's changes.
	Live bool
	// StartTime is the time of the start, UpdateTime the time of the last heartbeat.
	StartTime, UpdateTime time.Time
	// Resources is the number of resources in the target at the end.
	Resources int
}

// ReadStatus returns a store's record of the migration that it is the target of, or nil if there is none.
func ReadStatus(ctx context.Context, to storage.Backend) (*Status, error) {
	store, err := movable(to)
	if err != nil {
		return nil, err
	}
	s, _, err := readState(ctx, store)
	if err != nil || s == nil || s.Phase == phaseAborted || s.Phase == phaseComplete {
		return nil, err
	}
	return &Status{
		From: s.From, To: s.To, Phase: s.Phase, Live: s.Live, StartTime: s.StartTime, UpdateTime: s.UpdateTime, Resources: s.Resources,
	}, nil
}

// Abort cancels a migration that is not complete. It opens the source for writing if the migration has closed it, and releases the
// target. The copied resources stay in the target. A process that is still working on the migration stops by itself, and changes
// neither store any more, within the limits in the package's documentation.
//
// After an error, or if the process ends before it returns, call it again.
func Abort(ctx context.Context, from, to storage.Backend) error { return abort(ctx, from, to, false) }

// ForceAbort is Abort for stores that do not match because one of them was restored from a backup: the target's journal names
// another source, or no migration. It releases the target from an unfinished migration of any source, and opens the source whatever
// it is closed for. If the source has moved to a store that is in use, the two diverge: compare [ReadFence] first.
func ForceAbort(ctx context.Context, from, to storage.Backend) error {
	return abort(ctx, from, to, true)
}

func abort(ctx context.Context, from, to storage.Backend, force bool) error {
	source, err := movable(from)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	target, err := movable(to)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	id, _, err := source.ReadNote(ctx, identityNote)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	// A call that takes too long fails, and Abort fails with it: its caller decides whether to call it again.
	m := &migration{from: from, to: to, source: source, target: target}
	// The journal comes first: a process at work must not close the source again.
	for m.journal == nil {
		s, revision, err := readState(ctx, target)
		if err != nil {
			return fmt.Errorf("target: %w", err)
		}
		err = abortable(s, string(id))
		if s == nil && err != nil && !force {
			// A tool that created the target may have been killed before it wrote the journal.
			if fence, rerr := target.Fence(ctx); rerr == nil && fence.Closed && fence.Admits == guardNote {
				err = nil
			}
		}
		if err != nil && (!force || s != nil && s.Source == string(id)) {
			return err
		}
		if s == nil || s.Phase == Complete || s.Phase == phaseComplete {
			break // only the fence of the target may need a release
		}
		j := &journal{store: target, revision: revision, state: *s}
		_, j.targetGuards = storage.As[driver.GuardedMover](to)
		run := rand.Text()
		err = j.change(ctx, func(s *state) { s.Run, s.Phase, s.Cursor = run, phaseAborted, "" })
		switch {
		case err == nil:
			m.journal = j
		case !errors.Is(err, ErrSuperseded): // otherwise a process at work has written a heartbeat
			return fmt.Errorf("target: %w", err)
		}
	}
	if err := m.journal.takeGuard(ctx); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	m.journal.dropGuard(ctx)
	if err := m.releaseTarget(ctx); err != nil {
		return fmt.Errorf("the migration is aborted, but the target may still be closed (abort again, or unfence the target): %w", err)
	}
	if force {
		if err := source.SetFence(ctx, nil); err != nil {
			return fmt.Errorf("the target is released, but the source may still be closed (unfence it): %w", err)
		}
		return nil
	}
	if m.journal == nil {
		return nil // without a journal, no tool has closed the source
	}
	if err := m.newGate().open(ctx); errors.Is(err, errElsewhere) {
		return fmt.Errorf("the migration is aborted, and the source stays closed: %w", err)
	} else if err != nil {
		return fmt.Errorf("the migration is aborted, but the source may still be closed (abort again, or unfence the source): %w", err)
	}
	return nil
}

// releaseTarget opens the target, if it is closed for a migration into it.
func (m *migration) releaseTarget(ctx context.Context) error {
	if g := m.newTargetGate(); g != nil {
		return g.open(ctx)
	}
	fence, err := m.target.Fence(ctx)
	if err == nil && fence.Closed && fence.Admits == guardNote {
		err = m.target.SetFence(ctx, nil)
	}
	return err
}

// abortable returns the error for a migration that cannot be aborted. An aborted migration can be aborted again, because the source
// may still be closed.
func abortable(s *state, source string) error {
	switch {
	case s == nil, s.Phase == phaseComplete:
		return fmt.Errorf("%w: the target takes part in no migration; if it was restored from a backup, force the abort (ForceAbort, --force)", storage.ErrInvalid)
	case s.Source != source && s.Phase == phaseAborted:
		return fmt.Errorf("%w: the target takes part in no migration; the last one, from %s, was aborted", storage.ErrInvalid, s.From)
	case s.Source != source:
		return fmt.Errorf("%w: it has another source, %s; if one of the stores was restored from a backup, force the abort (ForceAbort, --force)", ErrBusy, s.From)
	case s.Phase == Opening:
		return fmt.Errorf("%w: the target has all contents already: run the migration again to open it, or unfence it if the source is lost", storage.ErrInvalid)
	case s.Phase == Complete:
		return fmt.Errorf("%w: the migration is complete; to go back, unfence the old store and migrate into it with Mirror", storage.ErrInvalid)
	}
	return nil
}

// Unfence opens a store for writing that a migration has closed.
func Unfence(ctx context.Context, b storage.Backend) error {
	store, err := movable(b)
	if err != nil {
		return err
	}
	return store.SetFence(ctx, nil)
}

// ReadFence returns whether a store was closed for writing, or is being closed, and the target of its migration.
func ReadFence(ctx context.Context, b storage.Backend) (driver.FenceState, error) {
	store, err := movable(b)
	if err != nil {
		return driver.FenceState{}, err
	}
	return store.Fence(ctx)
}

func movable(b storage.Backend) (driver.Mover, error) {
	m, ok := storage.As[driver.Mover](b)
	if !ok {
		return nil, fmt.Errorf("%w: it has neither a journal nor a fence", ErrUnsupported)
	}
	return m, nil
}
