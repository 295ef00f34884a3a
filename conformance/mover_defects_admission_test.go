package conformance

import (
	"context"
	"errors"
	"runtime"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// openFence reports a fence that admits a guard, and leaves the store open.
type openFence struct{ driver.GuardedMover }

func (m openFence) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (string, error) {
	if fence != nil && fence.Admits != "" {
		fence = nil
	}
	return m.GuardedMover.SetFenceAt(ctx, fence, epoch)
}

// admitsNone closes the store for the tool as well.
type admitsNone struct{ driver.GuardedMover }

func (m admitsNone) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (string, error) {
	if fence != nil && fence.Admits != "" {
		fence = &driver.Fence{Target: fence.Target}
	}
	return m.GuardedMover.SetFenceAt(ctx, fence, epoch)
}

// anyGuard accepts a write that the fence refuses if the write has some guard.
type anyGuard struct{ storage.Backend }

func (b anyGuard) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	got, err := b.Backend.WriteCAS(ctx, res)
	if errors.Is(err, storage.ErrFenced) && driver.GuardOf(ctx) != nil {
		return res, nil
	}
	return got, err
}

// anyRevision replaces the guard of a write by the present revision of its note.
type anyRevision struct {
	storage.Backend
	m driver.GuardedMover
}

func (b anyRevision) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	if g := driver.GuardOf(ctx); g != nil {
		_, revision, err := b.m.ReadNote(ctx, g.Note)
		if err != nil {
			return nil, err
		}
		ctx = driver.WithGuard(ctx, driver.Guard{Note: g.Note, Revision: revision})
	}
	return b.Backend.WriteCAS(ctx, res)
}

// lateAdmission closes the store for all but the tool only after it was listed and more was written.
type lateAdmission struct {
	driver.GuardedMover
	s *shared
}

func (m *lateAdmission) SetFenceAt(_ context.Context, fence *driver.Fence, epoch string) (string, error) {
	before, value := m.s.lists.Load(), *fence
	go func() {
		for m.s.lists.Load() == before {
			runtime.Gosched()
		}
		for wanted := m.s.writes.Load() + 20; m.s.writes.Load() < wanted; {
			runtime.Gosched() // the writers write until they are refused
		}
		_, _ = m.GuardedMover.SetFenceAt(context.Background(), &value, epoch) // the test shows whether it did
	}()
	return epoch, nil
}

// forgetsMove closes the store without the record that it has moved.
type forgetsMove struct{ driver.GuardedMover }

func (m forgetsMove) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (string, error) {
	if fence != nil {
		fence = &driver.Fence{Target: fence.Target}
	}
	return m.GuardedMover.SetFenceAt(ctx, fence, epoch)
}

// forgetsCursor records a move without the cursor.
type forgetsCursor struct{ driver.GuardedMover }

func (m forgetsCursor) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (string, error) {
	if fence != nil {
		copied := *fence
		copied.Cursor = ""
		fence = &copied
	}
	return m.GuardedMover.SetFenceAt(ctx, fence, epoch)
}

// endsEarly has watches that drop their events from the end of the snapshot on.
type endsEarly struct{ storage.Backend }

func (b endsEarly) WatchList(ctx context.Context, typ storage.UnversionedType, tenancy *resourcepb.Tenancy, prefix string) (storage.Watch, error) {
	w, err := b.Backend.WatchList(ctx, typ, tenancy, prefix)
	if err != nil {
		return nil, err
	}
	marks, _ := w.(storage.Bookmarker)
	return &withoutChanges{Watch: w, Bookmarker: marks}, nil
}

type withoutChanges struct {
	storage.Watch
	storage.Bookmarker
	live bool
}

func (w *withoutChanges) Next(ctx context.Context) (*resourcepb.WatchEvent, error) {
	for {
		ev, err := w.Watch.Next(ctx)
		if err != nil || !w.live {
			w.live = w.live || ev.GetEndOfSnapshot() != nil
			return ev, err
		}
	}
}
