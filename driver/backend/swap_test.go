package backend_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/history"
)

// contended is a driver of an empty store where another caller is always first.
type contended struct {
	stub
	driver.Historian[uint64]
	first func()
	err   error // of Apply
	limit int   // of the last ReadAt
}

func (c *contended) Apply(context.Context, []driver.Mutation) error {
	c.first()
	return c.err
}

func (c *contended) ReadAt(_ context.Context, q *driver.HistoryQuery[uint64], _ func(*driver.Version) error) (driver.HistoryPage[uint64], error) {
	c.limit = q.Limit
	return driver.HistoryPage[uint64]{At: 1}, nil
}

func (*contended) RevisionOf(at uint64) int64 { return int64(at) }

// A swap that loses every race until its context ends returns ErrInconsistent and not ErrCASFailure.
func TestContendedSwapIsNotRefused(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	attempts := 0
	b := backend.New(&contended{err: &storage.OpError{Err: storage.ErrCASFailure}, first: func() {
		if attempts++; attempts == 3 {
			cancel()
		}
	}}, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	h, ok := storage.As[history.Historian](b)
	if !ok {
		t.Fatal("the backend is no history.Historian")
	}
	_, err := h.Swap(ctx, history.Swap{Write: resource()})
	if !errors.Is(err, storage.ErrInconsistent) || !errors.Is(err, context.Canceled) || errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("Swap returned %v, expected ErrInconsistent and Canceled", err)
	}
	if attempts != 3 {
		t.Errorf("Swap made %d attempts, expected 3", attempts)
	}
}

// A swap that may have been applied is not repeated: the next attempt would find its own change and report a conflict.
func TestUncertainSwapIsNotRepeated(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	attempts := 0
	lost := fmt.Errorf("%w: %w", storage.ErrInconsistent, &storage.OpError{Err: storage.ErrCASFailure})
	b := backend.New(&contended{err: lost, first: func() {
		if attempts++; attempts == 3 {
			cancel()
		}
	}}, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	h, _ := storage.As[history.Historian](b)
	if _, err := h.Swap(ctx, history.Swap{Write: resource()}); !errors.Is(err, storage.ErrInconsistent) || errors.Is(err, storage.ErrCASFailure) {
		t.Errorf("Swap returned %v, expected only ErrInconsistent", err)
	}
	if attempts != 1 {
		t.Errorf("Swap made %d attempts, expected 1", attempts)
	}
}

// The limit that a driver receives leaves room for additions and multiplications.
func TestLimitIsBounded(t *testing.T) {
	t.Parallel()
	d := &contended{}
	b := backend.New(d, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	h, _ := storage.As[history.Historian](b)
	for limit, want := range map[int]int{0: 0, 7: 7, math.MaxInt: 1 << 24} {
		if _, err := h.Scan(t.Context(), history.Range{}, history.ScanOptions{Limit: limit}); err != nil || d.limit != want {
			t.Errorf("limit %d reached the driver as %d: %v", limit, d.limit, err)
		}
	}
}
