package backend_test

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/history"
)

// contended is a driver of an empty store in which somebody else is always first.
type contended struct {
	stub
	driver.Historian[uint64]
	first func()
	limit int // of the last reading
}

func (c *contended) Apply(context.Context, []driver.Mutation) error {
	c.first()
	return &storage.OpError{Err: storage.ErrCASFailure}
}

func (c *contended) ReadAt(_ context.Context, q *driver.HistoryQuery[uint64], _ func(*driver.Version) error) (driver.HistoryPage[uint64], error) {
	c.limit = q.Limit
	return driver.HistoryPage[uint64]{At: 1}, nil
}

func (*contended) RevisionOf(at uint64) int64 { return int64(at) }

// A swap for which others leave no time says so, and does not say that it was refused.
func TestSwapRunsOutOfTime(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	attempts := 0
	b := backend.New(&contended{first: func() {
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
		t.Errorf("got %v", err)
	}
	if attempts != 3 {
		t.Errorf("%d attempts", attempts)
	}
}

// No driver is given a limit with which it cannot reckon: one more, or times what came so far.
func TestLimitsDoNotOverflow(t *testing.T) {
	t.Parallel()
	d := &contended{}
	b := backend.New(d, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	h, _ := storage.As[history.Historian](b)
	for limit, want := range map[int]int{0: 0, 7: 7, math.MaxInt: 1 << 24} {
		if _, err := h.Scan(t.Context(), history.Span{}, history.ScanOptions{Limit: limit}); err != nil || d.limit != want {
			t.Errorf("limit %d came to the driver as %d: %v", limit, d.limit, err)
		}
	}
}
