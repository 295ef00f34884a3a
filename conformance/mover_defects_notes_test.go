package conformance

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/inmem"
)

// overwriting writes a note whatever revision it has.
type overwriting struct{ driver.GuardedMover }

func (m overwriting) WriteNote(ctx context.Context, name string, value []byte, _ string) (string, error) {
	_, now, err := m.ReadNote(ctx, name)
	if err != nil {
		return "", err
	}
	return m.GuardedMover.WriteNote(ctx, name, value, now)
}

// unrevised calls every revision "1".
type unrevised struct{ driver.GuardedMover }

func (m unrevised) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	if _, now, _ := m.ReadNote(ctx, name); revision == "" && now != "" {
		return "", driver.Conflict(name)
	}
	_, err := overwriting(m).WriteNote(ctx, name, value, "")
	return "1", err
}

// private keeps notes in a store of its own.
func private(m driver.GuardedMover) driver.GuardedMover {
	own, _ := storage.As[driver.Mover](inmem.New(nil))
	return privateNotes{m, own}
}

type privateNotes struct {
	driver.GuardedMover
	own driver.Mover
}

func (m privateNotes) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	return m.own.ReadNote(ctx, name)
}

func (m privateNotes) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	return m.own.WriteNote(ctx, name, value, revision)
}

// deleting deletes a note whatever revision it has.
type deleting struct{ driver.GuardedMover }

func (m deleting) DeleteNote(ctx context.Context, name, _ string) error {
	_, now, err := m.ReadNote(ctx, name)
	return errors.Join(err, m.GuardedMover.DeleteNote(ctx, name, now))
}

// once deletes no note that is not there.
type once struct{ driver.GuardedMover }

func (m once) DeleteNote(ctx context.Context, name, revision string) error {
	if _, now, err := m.ReadNote(ctx, name); err == nil && now == "" {
		return driver.Conflict(name)
	}
	return m.GuardedMover.DeleteNote(ctx, name, revision)
}

// cutting keeps less than the largest note.
type cutting struct{ driver.GuardedMover }

func (m cutting) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	return m.GuardedMover.WriteNote(ctx, name, value[:min(len(value), driver.MaxNote-1)], revision)
}

// emptyIsNone takes an empty note for none.
type emptyIsNone struct{ driver.GuardedMover }

func (m emptyIsNone) ReadNote(ctx context.Context, name string) (value []byte, revision string, err error) {
	if value, revision, err = m.GuardedMover.ReadNote(ctx, name); len(value) == 0 {
		revision = ""
	}
	return value, revision, err
}

// boundless takes notes of any name and size.
type boundless struct{ driver.GuardedMover }

func (m boundless) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	next, err := m.GuardedMover.WriteNote(ctx, name, value, revision)
	if errors.Is(err, storage.ErrInvalid) || errors.Is(err, storage.ErrTooLarge) {
		return revision, nil
	}
	return next, err
}

// unfenced says that it has changed the fence.
type unfenced struct{ driver.GuardedMover }

func (unfenced) SetFence(context.Context, *string) error { return nil }

// firstTarget leaves a closed store's target as it is.
type firstTarget struct{ driver.GuardedMover }

func (m firstTarget) SetFence(ctx context.Context, target *string) error {
	if state, err := m.Fence(ctx); err != nil || state.Closed && target != nil {
		return err
	}
	return m.GuardedMover.SetFence(ctx, target)
}

// fencedNotes refuses notes where the store is closed.
type fencedNotes struct{ driver.GuardedMover }

func (m fencedNotes) WriteNote(ctx context.Context, name string, value []byte, revision string) (string, error) {
	if state, err := m.Fence(ctx); err != nil || state.Closed {
		return "", errors.Join(err, driver.FenceError(state.Target))
	}
	return m.GuardedMover.WriteNote(ctx, name, value, revision)
}

// stuck never opens the store.
type stuck struct{ driver.GuardedMover }

func (m stuck) SetFence(ctx context.Context, target *string) error {
	if target == nil {
		return nil
	}
	return m.GuardedMover.SetFence(ctx, target)
}

// anyEpoch changes the fence at any epoch.
type anyEpoch struct{ driver.GuardedMover }

func (m anyEpoch) SetFenceAt(ctx context.Context, fence *driver.Fence, _ string) (string, error) {
	state, err := m.Fence(ctx)
	if err != nil {
		return "", err
	}
	return m.GuardedMover.SetFenceAt(ctx, fence, state.Epoch)
}

// changing changes the fence, and then finds that the fence had another epoch.
type changing struct{ driver.GuardedMover }

func (m changing) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (string, error) {
	next, err := m.GuardedMover.SetFenceAt(ctx, fence, epoch)
	if errors.Is(err, storage.ErrCASFailure) {
		if fence == nil {
			return "", errors.Join(err, m.SetFence(ctx, nil))
		}
		return "", errors.Join(err, m.SetFence(ctx, &fence.Target))
	}
	return next, err
}

// lazyOpening does nothing to a store that is open.
type lazyOpening struct{ driver.GuardedMover }

func (m lazyOpening) SetFence(ctx context.Context, target *string) error {
	if state, err := m.Fence(ctx); err != nil || !state.Closed && target == nil {
		return err
	}
	return m.GuardedMover.SetFence(ctx, target)
}

// twoEpochs calls the fence's epoch by whether it is closed.
type twoEpochs struct{ driver.GuardedMover }

func (m twoEpochs) Fence(ctx context.Context) (driver.FenceState, error) {
	state, err := m.GuardedMover.Fence(ctx)
	state.Epoch = "open"
	if state.Closed {
		state.Epoch = "closed"
	}
	return state, err
}

func (m twoEpochs) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (string, error) {
	state, err := m.GuardedMover.Fence(ctx)
	now, _ := m.Fence(ctx) // as the fence was just read
	if err != nil || epoch != now.Epoch {
		return "", driver.Conflict("fence")
	}
	if _, err := m.GuardedMover.SetFenceAt(ctx, fence, state.Epoch); err != nil {
		return "", err
	}
	now, err = m.Fence(ctx)
	return now.Epoch, err
}
