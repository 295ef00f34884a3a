package backend

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/telemetry"
)

// As provides a history.Historian, [driver.Mover], [driver.GuardedMover], [driver.ColumnChecker] or [driver.Bulk] to storage.As if the driver
// implements it. The backend adds to each call the error of a closed backend, a deadline, and the operation in the text of an error.
func (b *Backend[P]) As(target any) (ok bool) {
	switch t := target.(type) {
	case *history.Historian:
		if ok = b.historian != nil; ok {
			*t = historian[P]{b}
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
	case *driver.ColumnChecker:
		var d driver.ColumnChecker
		if d, ok = b.driver.(driver.ColumnChecker); ok {
			*t = columnChecker[P]{b, d}
		}
	case *driver.Bulk:
		var d driver.Bulk
		if d, ok = b.driver.(driver.Bulk); ok {
			*t = bulk[P]{columnChecker[P]{b, d}, d}
		}
	}
	return ok
}

// call runs a method of the driver as every method of a backend does: after the checks of begin, with a deadline, and with an error
// that begins with a text.
func call[T, P any](ctx context.Context, b *Backend[P], operation telemetry.Operation, text string, problem error, run func(context.Context) (T, error)) (_ T, err error) {
	var none T
	ctx, call, err := b.begin(ctx, operation, problem)
	if err != nil {
		return none, err
	}
	defer call.end(&err)
	result, err := run(ctx)
	if err != nil {
		return none, callError(text, nil, err)
	}
	return result, nil
}

// withoutResult adapts a function that returns only an error to call.
func withoutResult(run func(context.Context) error) func(context.Context) (struct{}, error) {
	return func(ctx context.Context) (struct{}, error) { return struct{}{}, run(ctx) }
}

type mover[P any] struct {
	b *Backend[P]
	m driver.Mover
}

func (m mover[P]) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	value, err = noteCall(ctx, m.b, name, nil, func(ctx context.Context) (value []byte, err error) {
		value, revision, err = m.m.ReadNote(ctx, name)
		return value, err
	})
	if err != nil {
		return nil, "", err
	}
	return value, revision, nil
}

func (m mover[P]) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	return noteCall(ctx, m.b, name, value, func(ctx context.Context) (string, error) { return m.m.WriteNote(ctx, name, value, revision) })
}

func (m mover[P]) DeleteNote(ctx context.Context, name, revision string) error {
	_, err := noteCall(ctx, m.b, name, nil, withoutResult(func(ctx context.Context) error { return m.m.DeleteNote(ctx, name, revision) }))
	return err
}

// noteCall is call for an operation on a note. An error about a conflict names the note by itself, so it gets no further text.
func noteCall[T, P any](ctx context.Context, b *Backend[P], name string, value []byte, run func(context.Context) (T, error)) (T, error) {
	result, err := call(ctx, b, telemetry.Note, fmt.Sprintf("journal note %q", name), checkNote(name, value), run)
	if errors.Is(err, storage.ErrCASFailure) {
		err = driver.Conflict(name)
	}
	return result, err
}

// checkNote checks the name and the value of a note against the limits that every Mover must accept.
func checkNote(name string, value []byte) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name of a journal note is empty", storage.ErrInvalid)
	case len(name) > driver.MaxNoteName:
		return fmt.Errorf("%w: the name of a journal note has %d bytes, expected at most %d", storage.ErrInvalid, len(name), driver.MaxNoteName)
	case strings.ContainsFunc(name, func(r rune) bool { return r != '-' && (r < 'a' || r > 'z') }):
		return fmt.Errorf("%w: the name of journal note %q may only contain lower-case letters and dashes", storage.ErrInvalid, name)
	case len(value) > driver.MaxNote:
		return fmt.Errorf("journal note %q: %w: its value has %d bytes, expected at most %d", name, storage.ErrTooLarge, len(value), driver.MaxNote)
	}
	return nil
}

func (m mover[P]) Fence(ctx context.Context) (driver.FenceState, error) {
	return call(ctx, m.b, telemetry.Fence, "fence", nil, m.m.Fence)
}

func (m mover[P]) SetFence(ctx context.Context, target *string) error {
	_, err := m.setFence(ctx, func(ctx context.Context) (string, error) { return "", m.m.SetFence(ctx, target) })
	return err
}

// setFence changes the fence within the backend's deadline. With Options.UnboundedFence it adds no deadline.
func (m mover[P]) setFence(ctx context.Context, set func(ctx context.Context) (string, error)) (_ string, err error) {
	if !m.b.opts.UnboundedFence {
		return call(ctx, m.b, telemetry.Fence, "fence", nil, set)
	}
	if err := m.b.enter(ctx); err != nil {
		return "", err
	}
	ctx, call := m.b.start(ctx, unbound, telemetry.Fence)
	defer call.end(&err)
	next, err := set(ctx)
	if err != nil {
		// Not callError: the driver may reject a short deadline before it sends a request, which is no ErrInconsistent.
		return "", fmt.Errorf("fence: %w", err)
	}
	return next, nil
}

type guardedMover[P any] struct {
	mover[P]
	g driver.GuardedMover
}

func (m guardedMover[P]) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (string, error) {
	return m.setFence(ctx, func(ctx context.Context) (string, error) { return m.g.SetFenceAt(ctx, fence, epoch) })
}

func (guardedMover[P]) Guards() {}

type columnChecker[P any] struct {
	b       *Backend[P]
	checker driver.ColumnChecker
}

func (c columnChecker[P]) CheckColumns(ctx context.Context, after []byte, limit int) (wrong []driver.Key, next []byte, err error) {
	wrong, err = call(ctx, c.b, telemetry.ReadRows, "check rows", nil, func(ctx context.Context) (wrong []driver.Key, err error) {
		wrong, next, err = c.checker.CheckColumns(ctx, after, limit)
		return wrong, err
	})
	return wrong, next, err
}

type bulk[P any] struct {
	columnChecker[P]
	d driver.Bulk
}

func (l bulk[P]) ReadAfter(ctx context.Context, after []byte, limit int) ([]driver.Row, error) {
	return call(ctx, l.b, telemetry.ReadRows, "read rows", nil, func(ctx context.Context) ([]driver.Row, error) { return l.d.ReadAfter(ctx, after, limit) })
}

func (l bulk[P]) Load(ctx context.Context, rows []driver.Row) error {
	_, err := call(ctx, l.b, telemetry.LoadRows, "load rows", nil, withoutResult(func(ctx context.Context) error {
		if len(rows) == 0 {
			return nil
		}
		return l.d.Load(ctx, rows)
	}))
	return err
}
