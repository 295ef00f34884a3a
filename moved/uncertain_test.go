package moved_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/moved"
	"github.com/ashlar-dev/storage/resourcepb"
)

// slowDelete is a store that calls a function when a deletion was applied.
type slowDelete struct {
	*inmem.Backend
	applied func()
}

func (s *slowDelete) DeleteCAS(ctx context.Context, id *resourcepb.ID, version string) error {
	err := s.Backend.DeleteCAS(ctx, id, version)
	s.applied()
	return err
}

func (s *slowDelete) Commit(ctx context.Context, ops []storage.Op) ([]*resourcepb.Resource, error) {
	results, err := s.Backend.Commit(ctx, ops)
	s.applied()
	return results, err
}

// A deletion that was applied is never reported as refused, or as an error that says that nothing was changed.
func TestAppliedDeletionIsNotRefused(t *testing.T) {
	t.Parallel()
	resolves := errors.New("there is no such store")
	for name, then := range map[string]func(t *testing.T, old, target string, first storage.Backend, cancel func()){
		"created again after the move": func(t *testing.T, old, target string, _ storage.Backend, _ func()) {
			move(t, old, target)
			fixture.Write(t, fixture.Open(t, target), thing("a"))
		},
		"no next store":   func(t *testing.T, old, _ string, _ storage.Backend, _ func()) { move(t, old, memoryURL(t)) },
		"closed":          func(_ *testing.T, _, _ string, first storage.Backend, _ func()) { _ = first.Close() },
		"context is over": func(_ *testing.T, _, _ string, _ storage.Backend, cancel func()) { cancel() },
	} {
		for call, run := range map[string]func(ctx context.Context, b *moved.Backend, res *resourcepb.Resource) error{
			"delete": func(ctx context.Context, b *moved.Backend, res *resourcepb.Resource) error {
				return b.DeleteCAS(ctx, res.Id, res.Version)
			},
			"commit": func(ctx context.Context, b *moved.Backend, res *resourcepb.Resource) error {
				_, err := b.Commit(ctx, []storage.Op{{Delete: res.Id, Version: res.Version}})
				return err
			},
		} {
			t.Run(call+", "+name, func(t *testing.T) {
				t.Parallel()
				old, target := memoryURL(t), memoryURL(t)
				res := fixture.Write(t, fixture.Open(t, old), thing("a"))
				first, err := storage.Open(t.Context(), old)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				applied := func() { then(t, old, target, first, cancel) }
				store := moved.New(&slowDelete{first.(*inmem.Backend), applied}, func(ctx context.Context, to *storage.MovedError) (storage.Backend, error) {
					if name == "no next store" {
						return nil, resolves
					}
					return storage.Open(ctx, target)
				})
				defer store.Close()
				err = run(ctx, store, res)
				if !errors.Is(err, storage.ErrInconsistent) || errors.Is(err, storage.ErrCASFailure) || errors.Is(err, storage.ErrFenced) {
					t.Errorf("got %v, expected only ErrInconsistent", err)
				}
				if (name == "closed") != errors.Is(err, storage.ErrClosed) || (name == "context is over") != errors.Is(err, context.Canceled) {
					t.Errorf("got %v, which does not match its cause", err)
				}
			})
		}
	}
}

// lostAnswer is a store whose answer to a write is lost, because the store moves. The repeated write finds the closed store.
type lostAnswer struct {
	*inmem.Backend
	move func()
}

func (l *lostAnswer) WriteCAS(ctx context.Context, res *resourcepb.Resource) (*resourcepb.Resource, error) {
	_, err := l.Backend.WriteCAS(ctx, res)
	l.move()
	if err == nil {
		_, err = l.Backend.WriteCAS(ctx, res)
	}
	return nil, fmt.Errorf("%w: %w", storage.ErrInconsistent, err)
}

// A write that may have been applied is not sent again to the next store, where its own result would be a conflict.
func TestLostAnswerOfMovedStore(t *testing.T) {
	t.Parallel()
	for name, isCreated := range map[string]bool{"create": true, "update": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old, target := memoryURL(t), memoryURL(t)
			first := fixture.Open(t, old).(*inmem.Backend)
			res := thing("a")
			if !isCreated {
				res = fixture.Write(t, first, res)
			}
			store := moved.New(&lostAnswer{first, func() { move(t, old, target) }}, moved.Among(old, target))
			defer store.Close()
			_, err := store.WriteCAS(fixture.Context(t), res)
			if !errors.Is(err, storage.ErrInconsistent) || errors.Is(err, storage.ErrCASFailure) {
				t.Errorf("got %v, expected ErrInconsistent", err)
			}
		})
	}
}

// slowFence is a store that does not answer the read of its fence in time.
type slowFence struct {
	*inmem.Backend
	driver.Mover
}

func (*slowFence) Fence(context.Context) (driver.FenceState, error) {
	return driver.FenceState{}, fmt.Errorf("%w: %w", storage.ErrInconsistent, context.DeadlineExceeded)
}

// An error for lack of time matches context.DeadlineExceeded if the deadline is not the caller's, too.
func TestDeadlineAfterAppliedDeletion(t *testing.T) {
	t.Parallel()
	first := fixture.Open(t, memoryURL(t)).(*inmem.Backend)
	res := fixture.Write(t, first, thing("a"))
	store := moved.New(&slowFence{Backend: first}, moved.Among())
	defer store.Close()
	err := store.DeleteCAS(fixture.Context(t), res.Id, res.Version)
	if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, expected ErrInconsistent and DeadlineExceeded", err)
	}
}

// noHistory is a store that has discarded the history of each cursor.
type noHistory struct {
	*inmem.Backend
	resumed atomic.Int32
}

func (n *noHistory) WatchFrom(context.Context, storage.UnversionedType, *resourcepb.Tenancy, string, string) (storage.Watch, error) {
	n.resumed.Add(1)
	return nil, storage.ErrCompacted
}

// A watch whose place in the next store was compacted ends, and keeps its error.
func TestCompactedCutoverEndsWatch(t *testing.T) {
	t.Parallel()
	old, target := memoryURL(t), memoryURL(t)
	next, err := storage.Open(t.Context(), target)
	if err != nil {
		t.Fatal(err)
	}
	compacted := &noHistory{Backend: next.(*inmem.Backend)}
	store := moved.New(fixture.Open(t, old), func(context.Context, *storage.MovedError) (storage.Backend, error) { return compacted, nil })
	defer store.Close()
	w, err := store.WatchList(t.Context(), fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	move(t, old, target)
	for range 2 {
		if err := last(fixture.Context(t), w); !errors.Is(err, storage.ErrWatchClosed) || !errors.Is(err, storage.ErrCompacted) {
			t.Errorf("got %v, expected ErrWatchClosed and ErrCompacted", err)
		}
	}
	if n := compacted.resumed.Load(); n != 1 {
		t.Errorf("the watch was resumed %d times", n)
	}
}

// A cursor of the next store is valid before the first call that finds the move.
func TestCursorOfTheNextStore(t *testing.T) {
	t.Parallel()
	old, target := memoryURL(t), memoryURL(t)
	from, to := fixture.Open(t, old), fixture.Open(t, target)
	move(t, old, target)
	w, err := to.WatchList(t.Context(), fixture.AllTypes, fixture.AllTenancies, "")
	if err != nil {
		t.Fatal(err)
	}
	for fixture.Next(t, w).GetEndOfSnapshot() == nil {
	}
	cursor := w.Cursor()
	w.Close()
	fixture.Write(t, to, thing("b"))
	store := moved.New(from, moved.Among(old, target))
	defer store.Close()
	resumed, err := store.WatchFrom(t.Context(), fixture.AllTypes, fixture.AllTenancies, "", cursor)
	if err != nil {
		t.Fatal(err)
	}
	defer resumed.Close()
	if ev := fixture.Next(t, resumed); ev.GetUpsert().GetResource().GetId().GetName() != "b" {
		t.Errorf("got %v, expected the resource that was written after the cursor", ev)
	}
}
