package sqlite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// checkDeadline checks that a call which waits for a lock fails with its context's error when the context ends.
func checkDeadline(ctx context.Context, t *testing.T, call func(context.Context) error) {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call(ctx) }()
	select {
	case err := <-done:
		if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got error %v, expected ErrInconsistent and the context's error", err)
		}
	case <-time.After(fixture.Timeout):
		t.Error("the call did not return after its context ended")
	}
}

// A call that opens a connection to a locked file waits no longer than its context.
func TestDeadlineWhileConnecting(t *testing.T) {
	t.Parallel()
	s, f := openFaulty(t)
	s.handle.options.Timeout = 2 * fixture.Timeout // the time a connection waits for a lock
	f.refuseLocks.Store(true)
	defer f.refuseLocks.Store(false)
	checkDeadline(fixture.CallTimeout(t.Context(), t, time.Second/4), t, func(ctx context.Context) error {
		_, err := s.Read(ctx, storage.StrongConsistency, idOf("a"))
		return err
	})
}

// A call that waits for another program's write ends with its context.
func TestFenceDeadline(t *testing.T) {
	t.Parallel()
	s := open(t, newPath(t), nil)
	db := openDirect(t, s.Path())
	execSQL(t, db, "BEGIN IMMEDIATE")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second/4)
	defer cancel()
	checkDeadline(ctx, t, func(ctx context.Context) error { return s.handle.SetFence(ctx, nil) })
	execSQL(t, db, "ROLLBACK")
}
