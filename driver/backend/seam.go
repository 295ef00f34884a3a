package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
)

// Seam finds a storage.Historian, [Mover], [GuardedMover], [BulkReader] or [Loader], where the driver is one, with what the tier adds to
// each call: the error of a backend that is closed, a deadline, and words around an error. storage.As asks it last: a layer that embeds
// a backend, and so has this method too, is found first for its own methods.
func (b *Backend[P]) Seam(target any) (ok bool) {
	switch t := target.(type) {
	case *storage.Historian:
		var h driver.Historian[P]
		if h, ok = b.driver.(driver.Historian[P]); ok {
			*t = historian[P]{b, h}
		}
	case *driver.Mover:
		var m driver.Mover
		if m, ok = b.driver.(driver.Mover); ok {
			*t = mover[P]{b, m}
		}
	case *driver.GuardedMover:
		var m driver.GuardedMover
		if m, ok = b.driver.(driver.GuardedMover); ok {
			*t = guardedMover[P]{mover[P]{b, m}, m}
		}
	case *driver.BulkReader:
		var r driver.BulkReader
		if r, ok = b.driver.(driver.BulkReader); ok {
			*t = bulkReader[P]{b, r}
		}
	case *driver.Loader:
		var l driver.Loader
		if l, ok = b.driver.(driver.Loader); ok {
			*t = loader[P]{b, l}
		}
	}
	return ok
}

type mover[P any] struct {
	b *Backend[P]
	m driver.Mover
}

func (m mover[P]) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	ctx, done, err := m.b.begin(ctx, checkNote(name, nil))
	if err != nil {
		return nil, "", err
	}
	defer done()
	value, revision, err = m.m.ReadNote(ctx, name)
	if err != nil {
		return nil, "", noteFailed(name, err)
	}
	return value, revision, nil
}

func (m mover[P]) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	ctx, done, err := m.b.begin(ctx, checkNote(name, value))
	if err != nil {
		return "", err
	}
	defer done()
	next, err := m.m.WriteNote(ctx, name, value, revision)
	if err != nil {
		return "", noteFailed(name, err)
	}
	return next, nil
}

func (m mover[P]) DeleteNote(ctx context.Context, name, revision string) error {
	ctx, done, err := m.b.begin(ctx, checkNote(name, nil))
	if err != nil {
		return err
	}
	defer done()
	if err := m.m.DeleteNote(ctx, name, revision); err != nil {
		return noteFailed(name, err)
	}
	return nil
}

// checkNote holds the name and the value of a note against what every Mover has to take.
func checkNote(name string, value []byte) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of a journal note is empty", storage.ErrInvalid)
	case len(name) > driver.MaxNoteName:
		return fmt.Errorf("%w: the name of a journal note has %d bytes, expected at most %d", storage.ErrInvalid, len(name), driver.MaxNoteName)
	case strings.ContainsFunc(name, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') }):
		return fmt.Errorf("%w: the name of journal note %q has other characters than lower-case letters and dashes", storage.ErrInvalid, name)
	case len(value) > driver.MaxNote:
		return fmt.Errorf("journal note %q: %w: its value has %d bytes, expected at most %d", name, storage.ErrTooLarge, len(value), driver.MaxNote)
	}
	return nil
}

// noteFailed is the error of a call about a note. A conflict names the note by itself.
func noteFailed(name string, err error) error {
	if errors.Is(err, storage.ErrCASFailure) {
		return driver.Conflict(name)
	}
	return callError(fmt.Sprintf("journal note %q", name), nil, err)
}

func (m mover[P]) Fence(ctx context.Context) (driver.FenceState, error) {
	ctx, done, err := m.b.begin(ctx)
	if err != nil {
		return driver.FenceState{}, err
	}
	defer done()
	state, err := m.m.Fence(ctx)
	if err != nil {
		return driver.FenceState{}, callError("fence", nil, err)
	}
	return state, nil
}

func (m mover[P]) SetFence(ctx context.Context, target *string) error {
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

type guardedMover[P any] struct {
	mover[P]
	g driver.GuardedMover
}

func (m guardedMover[P]) SetFenceAt(ctx context.Context, target *string, epoch string) (string, error) {
	ctx, done, err := m.b.begin(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	next, err := m.g.SetFenceAt(ctx, target, epoch)
	if err != nil {
		return "", callError("fence", nil, err)
	}
	return next, nil
}

func (guardedMover[P]) Guards() {}

type bulkReader[P any] struct {
	b *Backend[P]
	r driver.BulkReader
}

func (r bulkReader[P]) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	ctx, done, err := r.b.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	rows, err := r.r.ReadAfter(ctx, after, limit)
	if err != nil {
		return nil, callError("read on", nil, err)
	}
	return rows, nil
}

type loader[P any] struct {
	b *Backend[P]
	l driver.Loader
}

func (l loader[P]) Load(ctx context.Context, rows []driver.Row) error {
	ctx, done, err := l.b.begin(ctx)
	if err != nil {
		return err
	}
	defer done()
	if len(rows) == 0 {
		return nil
	}
	if err := l.l.Load(ctx, rows); err != nil {
		return callError("load", nil, err)
	}
	return nil
}
