package migrate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// begin determines the state of the migration, and starts it if there is none.
func (m *migration) begin(ctx context.Context, r *Result) error {
	source := m.o.From
	both := m.source != nil && m.target != nil
	if both {
		var err error
		if source, err = m.identifyStores(ctx); err != nil {
			return err
		}
	}
	var old *state
	var fence driver.FenceState
	var revision string
	if m.target != nil {
		var err error
		if old, fence, revision, err = m.currentMigration(ctx, both); err != nil {
			return err
		}
		m.journal = &journal{store: m.target, try: m.try, revision: revision, lease: m.o.lease}
		_, m.journal.targetGuards = storage.As[driver.GuardedMover](m.to)
	}
	switch {
	case old == nil:
	case old.Phase == phaseAborted, old.Phase == phaseComplete:
		old = nil
	case old.Source == source && old.Phase == Complete && fence.Closed && fence.Target == old.closedFor() && m.o.Live:
		m.journal.state = *old
		r.WasComplete = true
		return nil
	case old.Phase == Complete:
		old = nil // an earlier migration
	case old.Source != source:
		return fmt.Errorf("%w: the migration from %s is in phase %q, started %s; finish or abort it first", ErrBusy, old.From, old.Phase,
			old.StartTime.Format(time.RFC3339))
	}
	if old != nil && old.Live && !m.o.Live {
		return fmt.Errorf("%w: this migration was started live: continue it live, or abort it first", storage.ErrInvalid)
	}
	if old != nil && !old.Live && m.o.Live && old.Phase == Opening {
		return fmt.Errorf("%w: this copy only has to open the target: complete it without following first", storage.ErrInvalid)
	}
	if old != nil && old.Into.prunes() && !m.o.Into.prunes() {
		m.closed.Store(fence.Closed && fence.Target == old.closedFor())
		return fmt.Errorf("%w: this migration was started to make the target equal to the source, and would delete other contents of the target: %w",
			storage.ErrInvalid, errStuck)
	}
	if m.o.Live {
		if err := closedForOthers(fence, old); err != nil {
			m.closed.Store(old != nil && fence.Target == old.closedFor())
			return err
		}
		into := m.o.Into
		if old != nil && !(old.Into == Merge && into == Overwrite) {
			into = old.Into
		}
		if err := m.canProve(ctx, into); err != nil && (old == nil || old.Phase != Opening) {
			if old != nil {
				err = fmt.Errorf("%w: %w", err, errStuck)
			}
			return err
		}
	}
	var err error
	if old != nil {
		err = m.resume(ctx, r, old, revision)
	} else {
		err = m.start(ctx, source)
	}
	if err != nil {
		return err
	}
	m.closed.Store(fence.Closed && slices.Contains([]Phase{Cutover, Opening}, m.journal.current().Phase))
	m.gate, m.targetGate = m.newGate(), m.newTargetGate()
	return m.journal.takeGuard(ctx)
}

// identifyStores checks that the two stores are different, and returns the source's identity.
func (m *migration) identifyStores(ctx context.Context) (source string, err error) {
	if source, err = identity(ctx, m.source, m.try, true); err != nil {
		return "", fmt.Errorf("source: %w", err)
	}
	target, err := identity(ctx, m.target, m.try, true)
	if err != nil {
		return "", fmt.Errorf("target: %w", err)
	}
	if source == target {
		return "", fmt.Errorf("%w: source and target are the same store", storage.ErrInvalid)
	}
	// The name identifies the migration that has closed the source. A user-given name alone may be used by another migration.
	m.closedFor = fmt.Sprintf("%s (store %.8s)", m.o.To, target)
	return source, nil
}

// currentMigration returns the note of the target's last migration with its revision and, for stores that have both, the source's fence at
// that revision. No process closes or opens the source without writing the note first. A process that was suspended between two
// reads must not take a migration that was completed meanwhile for an earlier one.
func (m *migration) currentMigration(ctx context.Context, both bool) (old *state, fence driver.FenceState, revision string, err error) {
	readNote := func(ctx context.Context) (err error) {
		old, revision, err = readState(ctx, m.target)
		return err
	}
	for range maxJournalReads {
		if err := m.try.do(ctx, "read the journal", readNote); err != nil {
			return nil, fence, "", fmt.Errorf("target: %w", err)
		}
		if !both {
			return old, fence, revision, nil
		}
		if fence, err = m.fences(ctx); err != nil {
			return nil, fence, "", err
		}
		before := revision
		if err := m.try.do(ctx, "read the journal", readNote); err != nil {
			return nil, fence, "", fmt.Errorf("target: %w", err)
		}
		if revision == before {
			return old, fence, revision, nil
		}
	}
	return nil, fence, "", errAtWork
}

// maxJournalReads limits how often the journal may change while a process reads the state.
const maxJournalReads = 10

// errAtWork means that another process writes heartbeats.
var errAtWork = fmt.Errorf("%w: another process is working on this migration", ErrBusy)

// fences returns the source's fence, and checks that the target has none, except one that admits the tool.
func (m *migration) fences(ctx context.Context) (fence driver.FenceState, err error) {
	if fence, err = m.source.Fence(ctx); err != nil {
		return fence, fmt.Errorf("source: %w", err)
	}
	own, err := m.target.Fence(ctx)
	if err != nil {
		return fence, fmt.Errorf("target: %w", err)
	}
	if own.Closed && own.Admits != guardNote {
		return fence, fmt.Errorf("target: %w (unfence it first to use it again)", own.Refusal(nil))
	}
	return fence, nil
}

// closedForOthers returns the error of a live migration whose source is closed, unless this migration has closed it.
func closedForOthers(fence driver.FenceState, old *state) error {
	switch {
	case !fence.Closed:
		return nil
	case old == nil:
		return fmt.Errorf("source: %w (unfence it first, or copy without following)", fence.Refusal(nil))
	case fence.Target != old.closedFor():
		return fmt.Errorf("source: %w, so this migration cannot continue: %w", fence.Refusal(nil), errStuck)
	case old.Phase != Cutover && old.Phase != Opening:
		// The source was closed by a replaced process, in a store whose fence has no epoch.
		return fmt.Errorf("source: %w, although this migration is in phase %q: %w", fence.Refusal(nil), old.Phase, errStuck)
	}
	return nil
}

// newGate returns the gate of the source, or nil if the source has no fence.
func (m *migration) newGate() *gate {
	if m.source == nil || m.journal == nil {
		return nil
	}
	now := m.journal.current()
	g := &gate{role: "source", store: m.source, fence: driver.Fence{Target: now.closedFor()}, try: m.try, mine: m.journal.confirm}
	g.guardedStore, _ = storage.As[driver.GuardedMover](m.from)
	g.stillWanted = func(ctx context.Context) (bool, error) {
		s, _, err := readState(ctx, m.target)
		return s != nil && (s.Phase == Cutover || s.Phase == Opening || s.Phase == Complete), err
	}
	return g
}

// resume continues a migration that another process has started.
func (m *migration) resume(ctx context.Context, r *Result, old *state, revision string) error {
	busy, err := alive(ctx, m.target, revision, m.o.takeover)
	if err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if busy {
		return errAtWork
	}
	if old.Into == Merge && m.o.Into == Overwrite {
		old.Into = Overwrite // changed by this call's options
	}
	m.o.Into = old.Into
	m.journal.state = *old
	r.IsResumed = true
	run := rand.Text()
	return m.journal.change(ctx, func(s *state) { s.Run, s.Live = run, m.o.Live })
}

// start starts a migration, if its conditions hold.
func (m *migration) start(ctx context.Context, source string) error {
	cursor := ""
	switch m.o.Into {
	case Empty:
		empty, err := isEmpty(ctx, m.to, m.try)
		if err != nil {
			return fmt.Errorf("target: %w", err)
		}
		if !empty {
			return ErrNotEmpty
		}
	case Merge:
		l, err := m.listSource(ctx)
		if err != nil {
			return err
		}
		cursor = l.cursor
		err = m.preflight(ctx, l)
		l.close()
		if err != nil {
			return err
		}
	}
	phase := Copying
	if m.journal != nil && m.journal.targetGuards {
		phase = Preparing
	}
	return m.journal.change(ctx, func(s *state) {
		*s = state{
			Format: stateFormat, Source: source, From: m.o.From, To: m.o.To, ClosedFor: m.closedFor, Run: rand.Text(), Beat: s.Beat,
			Phase: phase, Live: m.o.Live, Into: m.o.Into, Cursor: cursor, StartTime: time.Now().UTC().Truncate(time.Millisecond),
		}
	})
}

// keepAlive writes heartbeats while no other call changes the journal, and cancels everything when another process has taken over.
func (m *migration) keepAlive(ctx context.Context, cancel context.CancelCauseFunc) (stop func()) {
	if m.journal == nil {
		return func() {}
	}
	ctx, end := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(journalEvery)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			if m.journal.quiet() < journalEvery {
				continue
			}
			err := m.journal.confirm(ctx)
			if errors.Is(err, ErrSuperseded) {
				cancel(ErrSuperseded)
				return
			}
		}
	}()
	return func() {
		end()
		<-ended
	}
}
