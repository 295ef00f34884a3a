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

// paged is a driver of a store that never fits a page. Its revisions are its positions.
type paged struct {
	stub
	driver.Historian[uint64]
	newest    uint64
	lookups   int
	compacted bool
}

func (p *paged) ReadAt(_ context.Context, q *driver.HistoryQuery[uint64], _ func(*driver.Version) error) (driver.HistoryPage[uint64], error) {
	switch {
	case p.compacted:
		return driver.HistoryPage[uint64]{}, storage.ErrCompacted
	case q.At == nil:
		return driver.HistoryPage[uint64]{At: p.newest, More: true}, nil
	}
	return driver.HistoryPage[uint64]{At: *q.At, More: true}, nil
}

func (*paged) RevisionOf(at uint64) int64 { return int64(at) }

func (p *paged) PositionAt(_ context.Context, revision int64) (uint64, error) {
	p.lookups++
	return uint64(revision), nil
}

// The next page of a scan needs no lookup of its revision while the position is still readable.
func TestScanReusesPositions(t *testing.T) {
	t.Parallel()
	d := &paged{newest: 7}
	b := backend.New(d, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	h, _ := storage.As[history.Historian](b)
	scan := func(revision int64, want error, lookups int) {
		t.Helper()
		got, err := h.Scan(t.Context(), history.Range{}, history.ScanOptions{Revision: revision})
		if !errors.Is(err, want) || want == nil && got.Revision != 7 || d.lookups != lookups {
			t.Fatalf("revision %d: at %d, %v, %d lookups; expected %v and %d", revision, got.Revision, err, d.lookups, want, lookups)
		}
	}
	scan(7, nil, 1)
	scan(0, nil, 1)
	scan(7, nil, 1)
	for d.newest = 8; d.newest < 1000; d.newest++ {
		if _, err := h.Scan(t.Context(), history.Range{}, history.ScanOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	d.newest = 7
	scan(0, nil, 1)
	d.compacted = true
	scan(7, storage.ErrCompacted, 1)
	d.compacted = false
	scan(7, nil, 2)
}
