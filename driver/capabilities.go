package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/handover"
)

// Seam finds what a migration uses, where the driver has it. storage.As asks it last: a layer that embeds a backend, and so has this
// method too, is found first for what it does in its own way.
func (b *Backend[P]) Seam(target any) bool {
	m, isMover := b.driver.(Mover)
	g, isGuarded := b.driver.(GuardedMover)
	switch t := target.(type) {
	case *handover.Reader:
		r, ok := b.driver.(BulkReader)
		*t = bulkReader[P]{b, r}
		return ok
	case *handover.Loader:
		l, ok := b.driver.(Loader)
		*t = loader[P]{b, l}
		return ok
	case *handover.Store:
		*t = mover[P]{b, m}
		return isMover
	case *handover.Journal:
		*t = mover[P]{b, m}
		return isMover
	case *handover.Fencer:
		*t = mover[P]{b, m}
		return isMover
	case *handover.EpochFencer:
		*t = guardedMover[P]{mover[P]{b, m}, g}
		return isGuarded
	case *handover.Guarder:
		*t = guardedMover[P]{mover[P]{b, m}, g}
		return isGuarded
	}
	return false
}

// mover is a Mover as the tool that moves data knows it.
type mover[P any] struct {
	b *Backend[P]
	m Mover
}

var _ handover.Store = mover[int]{}

// ReadJournal implements handover.Journal.
func (m mover[P]) ReadJournal(ctx context.Context, name string) (value []byte, revision string, err error) {
	ctx, done, err := m.b.begin(ctx)
	if err != nil {
		return nil, "", err
	}
	defer done()
	value, revision, err = m.m.ReadNote(ctx, name)
	if err != nil {
		return nil, "", journal(name, err)
	}
	return value, revision, nil
}

// WriteJournal implements handover.Journal.
func (m mover[P]) WriteJournal(ctx context.Context, name string, value []byte, revision string) (string, error) {
	ctx, done, err := m.b.begin(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	next, err := m.m.WriteNote(ctx, name, value, revision)
	if err != nil {
		return "", journal(name, err)
	}
	return next, nil
}

// DeleteJournal implements handover.Journal.
func (m mover[P]) DeleteJournal(ctx context.Context, name, revision string) error {
	ctx, done, err := m.b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if err := m.m.DeleteNote(ctx, name, revision); err != nil {
		return journal(name, err)
	}
	return nil
}

// journal is the error of a call about a note. A conflict names the note by itself.
func journal(name string, err error) error {
	if errors.Is(err, storage.ErrCASFailure) {
		return Conflict(name)
	}
	return failed(fmt.Sprintf("journal note %q", name), nil, err)
}

// Fence implements handover.Fencer.
func (m mover[P]) Fence(ctx context.Context, target string) error { return m.set(ctx, &target) }

// Unfence implements handover.Fencer.
func (m mover[P]) Unfence(ctx context.Context) error { return m.set(ctx, nil) }

func (m mover[P]) set(ctx context.Context, target *string) error {
	if m.b.opts.UnboundedFence {
		if err := m.b.enter(ctx); err != nil {
			return err
		}
	} else {
		var done context.CancelFunc
		var err error
		if ctx, done, err = m.b.begin(ctx); err != nil {
			return err
		}
		defer done()
	}
	if err := m.m.SetFence(ctx, target); err != nil {
		return fmt.Errorf("fence: %w", err) // a driver may refuse a deadline before it has sent anything
	}
	return nil
}

// Fenced implements handover.Fencer.
func (m mover[P]) Fenced(ctx context.Context) (target string, fenced bool, err error) {
	state, err := m.FenceState(ctx)
	return state.Target, state.Closed, err
}

// FenceState implements handover.EpochFencer.
func (m mover[P]) FenceState(ctx context.Context) (handover.FenceState, error) {
	ctx, done, err := m.b.begin(ctx)
	if err != nil {
		return handover.FenceState{}, err
	}
	defer done()
	state, err := m.m.Fence(ctx)
	if err != nil {
		return handover.FenceState{}, failed("fence", nil, err)
	}
	return state, nil
}

// guardedMover is a GuardedMover as the tool that moves data knows it.
type guardedMover[P any] struct {
	mover[P]
	g GuardedMover
}

var _ interface {
	handover.EpochFencer
	handover.Guarder
} = guardedMover[int]{}

// FenceAt implements handover.EpochFencer.
func (m guardedMover[P]) FenceAt(ctx context.Context, target, epoch string) (string, error) {
	return m.setAt(ctx, &target, epoch)
}

// UnfenceAt implements handover.EpochFencer.
func (m guardedMover[P]) UnfenceAt(ctx context.Context, epoch string) (string, error) {
	return m.setAt(ctx, nil, epoch)
}

func (m guardedMover[P]) setAt(ctx context.Context, target *string, epoch string) (string, error) {
	ctx, done, err := m.b.begin(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	next, err := m.g.SetFenceAt(ctx, target, epoch)
	if err != nil {
		return "", failed("fence", nil, err)
	}
	return next, nil
}

// WithGuard implements handover.Guarder.
func (m guardedMover[P]) WithGuard(ctx context.Context, note, revision string) context.Context {
	return handover.Guarded(ctx, note, revision)
}

// bulkReader is a BulkReader as the tool that moves data knows it.
type bulkReader[P any] struct {
	b *Backend[P]
	r BulkReader
}

// ReadAfter implements handover.Reader.
func (r bulkReader[P]) ReadAfter(ctx context.Context, after []byte, limit int) ([]handover.Row, error) {
	ctx, done, err := r.b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	rows, err := r.r.ReadAfter(ctx, after, limit)
	if err != nil {
		return nil, failed("read on", nil, err)
	}
	return rows, nil
}

// loader is a Loader as the tool that moves data knows it.
type loader[P any] struct {
	b *Backend[P]
	l Loader
}

// Load implements handover.Loader.
func (l loader[P]) Load(ctx context.Context, rows []handover.Row) error {
	ctx, done, err := l.b.begin(ctx)
	if err != nil || len(rows) == 0 {
		return err
	}
	defer done()
	if err := l.l.Load(ctx, rows); err != nil {
		return failed("load", nil, err)
	}
	return nil
}
