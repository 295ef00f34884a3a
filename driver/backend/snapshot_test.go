package backend_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/backend"
	"github.com/ashlar-dev/storage/resourcepb"
)

// quiet is the source of a store without changes.
type quiet struct{ driver.Source[uint64] }

func (quiet) Run(ctx context.Context, ready func(uint64), _ func([]*driver.Event[uint64], uint64)) error {
	ready(1)
	<-ctx.Done()
	return ctx.Err()
}

func (quiet) Encode(uint64) []byte { return []byte{1} }

// listed is a driver of a store of three resources, whose pages contain one each. It records the queries.
type listed struct {
	stub
	driver.Historian[uint64]
	queries []driver.HistoryQuery[uint64]
}

func (*listed) Source() driver.Source[uint64] { return quiet{} }

func (l *listed) ReadAt(_ context.Context, q *driver.HistoryQuery[uint64], add func(*driver.Version) error) (driver.HistoryPage[uint64], error) {
	l.queries = append(l.queries, *q)
	n := len(l.queries)
	k := driver.Key{Group: "g", Kind: "k", Name: fmt.Sprint("n", n)}
	err := add(&driver.Version{Key: k.Bytes(), Resource: &resourcepb.Resource{Id: k.ID("u", "v")}})
	return driver.HistoryPage[uint64]{At: 1, More: n < 3}, err
}

// The driver knows of each page of a snapshot that a watch reads it, so that it can reserve connections for other callers. Only the first
// page, which an unread watch holds, is small, and is refused in a store that has moved.
func TestPagesOfSnapshotsPrecedeWatches(t *testing.T) {
	t.Parallel()
	l := &listed{}
	b := backend.New(l, backend.Options[uint64]{})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	w, err := b.WatchList(t.Context(), storage.UnversionedType{Group: "g", Kind: "k"}, &resourcepb.Tenancy{}, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	for n := range 4 {
		ev, err := w.Next(t.Context())
		if err != nil || (ev.GetEndOfSnapshot() != nil) != (n == 3) {
			t.Fatalf("event %d: %v, %v", n, ev, err)
		}
	}
	for i, q := range l.queries {
		isFirst := i == 0
		if !q.PrecedesWatch || (q.At == nil) != isFirst || (q.Bytes > 0) != isFirst || q.RefuseMoved != isFirst {
			t.Errorf("page %d: precedes a watch: %t, position: %v, bytes: %d, refused if the store has moved: %t", i, q.PrecedesWatch, q.At, q.Bytes, q.RefuseMoved)
		}
	}
	if len(l.queries) != 3 {
		t.Errorf("%d pages were read, expected 3", len(l.queries))
	}
}
