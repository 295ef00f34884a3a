package inmem

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"google.golang.org/protobuf/types/known/anypb"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	past "github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/internal/codec"
)

// checkHistory compares the size of the history, and the deletions in the tree, with what the history holds.
func checkHistory(t *testing.T, s *store) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.history
	bytes := 0
	for i, ev := range h.events {
		bytes += ev.Size + eventOverhead
		if before := h.items[i].before.Load(); before != nil && before.at <= h.from {
			bytes += before.size + eventOverhead
		}
	}
	if h.bytes != bytes || s.at-h.from != position(len(h.events)) {
		t.Fatalf("the history after %d of %d has %d events and %d bytes, expected %d bytes", h.from, s.at, len(h.events), h.bytes, bytes)
	}
	s.tree.Scan(func(it *item) bool {
		if it.isDeletion() && it.at <= h.from {
			t.Fatalf("a deletion at %d is in the tree, although the history begins after %d", it.at, h.from)
		}
		return true
	})
}

// Writes, deletions and compactions keep the size of the history exact. Dropped changes are freed.
func TestHistorySize(t *testing.T) {
	t.Parallel()
	for _, opts := range []*Options{{History: 8}, {HistoryBytes: 8 * (eventOverhead + 100)}, nil} {
		b := New(opts)
		t.Cleanup(func() { _ = b.Close() }) // never fails
		s := b.handle.store
		for range 500 {
			res := newResource(fmt.Sprint(rand.N(4)))
			if stored, _ := s.get(key.Of(res.Id)); stored != nil {
				res.Version = stored.resource.Version
			}
			res.Data = &anypb.Any{Value: make([]byte, rand.N(200))}
			var err error
			if rand.N(3) == 0 {
				err = b.DeleteCAS(t.Context(), res.Id, res.Version)
			} else {
				_, err = b.WriteCAS(t.Context(), res)
			}
			if err == nil && rand.N(10) == 0 {
				oldest, newest, _ := s.Revisions(t.Context())
				err = s.Compact(t.Context(), oldest+rand.N(newest-oldest+1))
			}
			if err != nil {
				t.Fatal(err)
			}
			checkHistory(t, s)
		}
	}
}

// The history holds as many changes and bytes as its bounds say.
func TestExactHistory(t *testing.T) {
	t.Parallel()
	weightOf := codec.Size(newResource("0")) + eventOverhead
	for name, opts := range map[string]*Options{"changes": {History: 3}, "bytes": {HistoryBytes: 3 * weightOf}, "fewer bytes": {HistoryBytes: 4*weightOf - 1}} {
		b := New(opts)
		t.Cleanup(func() { _ = b.Close() }) // never fails
		first := int64(b.handle.at)
		for i := range 5 {
			if _, err := b.WriteCAS(t.Context(), newResource(fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
			if oldest, newest, _ := b.handle.Revisions(t.Context()); oldest != max(first, newest-3) || newest != first+int64(i+1) {
				t.Errorf("%s: the history holds the revisions after %d up to %d, expected three", name, oldest, newest)
			}
		}
	}
}

// The newest revision can be read and compacted to. The next one is in the future.
func TestFutureRevision(t *testing.T) {
	t.Parallel()
	b := New(nil)
	t.Cleanup(func() { _ = b.Close() }) // never fails
	if _, err := b.WriteCAS(t.Context(), newResource("a")); err != nil {
		t.Fatal(err)
	}
	s := b.handle.store
	newest := int64(s.at)
	for revision, want := range map[int64]error{newest: nil, newest + 1: storage.ErrFutureRevision} {
		_, err := s.PositionAt(t.Context(), revision)
		if final := s.AwaitFinal(t.Context(), revision); !errors.Is(err, want) || !errors.Is(final, want) {
			t.Errorf("revision %d of %d: %v and %v, expected %v", revision, newest, err, final, want)
		}
		if err := s.Compact(t.Context(), revision); !errors.Is(err, want) {
			t.Errorf("compaction to revision %d of %d: %v, expected %v", revision, newest, err, want)
		}
	}
}

// Every kind of page is bounded in bytes: of a list, of a scan at a revision, and of the history.
func TestPagesAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := New(nil)
	t.Cleanup(func() { _ = b.Close() }) // never fails
	const count, size = 12, 1 << 20
	first := b.handle.at
	for i := range count {
		res := newResource(fmt.Sprint(i))
		res.Data = &anypb.Any{Value: make([]byte, size-100)}
		if _, err := b.WriteCAS(ctx, res); err != nil {
			t.Fatal(err)
		}
	}
	const most = 6 // 4 MiB, and a resource that exceeds them
	tenancy := newResource("").Id.Tenancy
	pager, _ := storage.As[storage.Pager](storage.Backend(b))
	page, err := pager.ListPage(ctx, storage.UnversionedType{Group: "g", Kind: "k"}, tenancy, "", storage.ListOptions{Limit: count})
	if err != nil || len(page.Resources) == 0 || len(page.Resources) > most || page.Continue == "" {
		t.Errorf("the page of a list has %d resources of 1 MiB (%v), expected %d at most", len(page.Resources), err, most)
	}
	h, _ := storage.As[past.Historian](storage.Backend(b))
	scan, err := h.Scan(ctx, past.Range{}, past.ScanOptions{Revision: int64(b.handle.at), Limit: count})
	if err != nil || len(scan.Records) == 0 || len(scan.Records) > most || !scan.More {
		t.Errorf("the page of a scan has %d records of 1 MiB (%v), expected %d at most", len(scan.Records), err, most)
	}
	events, end, more, err := source{store: b.handle.store}.page(ctx, first, count)
	if err != nil || len(events) == 0 || len(events) > most || !more || end != first+position(len(events)) {
		t.Errorf("the page of the history has %d changes of 1 MiB (%v), expected %d at most", len(events), err, most)
	}
}
