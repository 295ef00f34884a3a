package conformance

import (
	"context"
	"errors"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// otherFence closes the store by a changed fence.
type otherFence struct {
	driver.GuardedMover
	change func(driver.Fence) *driver.Fence
}

func (m otherFence) SetFenceAt(ctx context.Context, fence *driver.Fence, epoch string) (string, error) {
	if fence != nil {
		fence = m.change(*fence)
	}
	return m.GuardedMover.SetFenceAt(ctx, fence, epoch)
}

// openFence leaves a store open whose fence admits a guard.
func openFence(f driver.Fence) *driver.Fence {
	if f.Admits != "" {
		return nil
	}
	return &f
}

// forgetsMove closes the store without the record that it has moved, and for the tool as well.
func forgetsMove(f driver.Fence) *driver.Fence { return &driver.Fence{Target: f.Target} }

// forgetsCursor records a move without the cursor.
func forgetsCursor(f driver.Fence) *driver.Fence {
	f.Cursor = ""
	return &f
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
		m.s.awaitWrites(before)
		_, _ = m.GuardedMover.SetFenceAt(context.Background(), &value, epoch) // the test shows whether it did
	}()
	return epoch, nil
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
