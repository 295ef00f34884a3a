package backend_test

import (
	"context"
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/history"
)

// paged is a driver of a store that has more than any page, and whose revision is its position.
type paged struct {
	stub
	driver.Historian[uint64]
	newest   uint64
	lookedUp int
	gone     bool
}

func (p *paged) ReadAt(_ context.Context, q *driver.HistoryQuery[uint64], _ func(*driver.Version) error) (driver.HistoryPage[uint64], error) {
	switch {
	case p.gone:
		return driver.HistoryPage[uint64]{}, storage.ErrCompacted
	case q.At == nil:
		return driver.HistoryPage[uint64]{At: p.newest, More: true}, nil
	}
	return driver.HistoryPage[uint64]{At: *q.At, More: true}, nil
}

func (*paged) RevisionOf(at uint64) int64 { return int64(at) }

func (p *paged) PositionAt(_ context.Context, revision int64) (uint64, error) {
	p.lookedUp++
	return uint64(revision), nil
}

// The next page of a listing does not ask where its revision is, as long as the position is still there.
func TestNextPagesAreReadAtOnce(t *testing.T) {
	t.Parallel()
	d := &paged{newest: 7}
	b := backend.New(d, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	h, _ := storage.As[history.Historian](b)
	scan := func(revision int64, want error, lookedUp int) {
		t.Helper()
		got, err := h.Scan(t.Context(), history.Span{}, history.ScanOptions{Revision: revision})
		if !errors.Is(err, want) || want == nil && got.Revision != 7 || d.lookedUp != lookedUp {
			t.Fatalf("revision %d: at %d, %v, looked up %d times; expected %v and %d", revision, got.Revision, err, d.lookedUp, want, lookedUp)
		}
	}
	scan(7, nil, 1)
	scan(0, nil, 1)
	scan(7, nil, 1)
	for d.newest = 8; d.newest < 1000; d.newest++ {
		if _, err := h.Scan(t.Context(), history.Span{}, history.ScanOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.newest = 7
	scan(0, nil, 1)
	d.gone = true
	scan(7, storage.ErrCompacted, 1)
	d.gone = false
	scan(7, nil, 2)
}
