package inmem

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	past "github.com/ashlar-dev/storage/history"
	"github.com/ashlar-dev/storage/resourcepb"
)

func newResource(name string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: key.Key{Group: "g", Kind: "k", Name: name}.ID("u", "v1")}
}

// A scan of the present is complete although history is compacted past its position during the scan.
func TestScanDuringCompaction(t *testing.T) {
	t.Parallel()
	b := New(nil)
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	res := &resourcepb.Resource{Id: &resourcepb.ID{Uid: "u", Name: "n", Type: &resourcepb.Type{Group: "g", Kind: "k"}, Tenancy: &resourcepb.Tenancy{}}}
	rewrite := func() {
		var err error
		if res, err = b.WriteCAS(t.Context(), res); err != nil {
			t.Fatal(err)
		}
	}
	rewrite()
	before, s := res.Version, b.handle.store
	var shown []string
	past, err := s.ReadAt(t.Context(), &driver.HistoryQuery[position]{}, func(v *driver.Version) error {
		shown = append(shown, string(v.Version))
		rewrite()
		return s.Compact(t.Context(), int64(s.at))
	})
	if err != nil || len(shown) != 1 || shown[0] != before {
		t.Errorf("the scan returned versions %q, error %v, expected version %q", shown, err, before)
	}
	if oldest, _, _ := s.Revisions(t.Context()); oldest <= int64(past.At) {
		t.Errorf("the oldest revision is %d and the scan was at %d: the test compacted nothing past the scan", oldest, past.At)
	}
}

// Before finds the version before an old change without visiting newer versions of the key, because it holds the lock.
// The test cuts the key's chain of versions above the old changes, so the newest version does not lead to them.
func TestBeforeSkipsNewerChanges(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := New(nil)
	t.Cleanup(func() { _ = b.Close() }) // never fails
	const writes, old = 200, 100
	res := newResource("a")
	for range writes {
		stored, err := b.WriteCAS(ctx, res)
		if err != nil {
			t.Fatal(err)
		}
		res.Version = stored.Version
	}
	h := &b.handle.history
	h.items[old].before.Store(nil)
	for _, events := range [][]*driver.Event[position]{h.events[:old], h.events[old+1:]} {
		versions, err := b.handle.Before(ctx, events)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range versions {
			if want := events[i].Revision - 1; v == nil && want > 1 || v != nil && v.ModRevision != want {
				t.Fatalf("the version before revision %d is %v", events[i].Revision, v)
			}
		}
	}
}

// A scan of keys ends at a number of bytes, like a scan of resources.
func TestKeyPagesAreBounded(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := New(nil)
	t.Cleanup(func() { _ = b.Close() }) // never fails
	const keys = 7_000
	for i := range keys {
		if _, err := b.WriteCAS(ctx, newResource(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	h, _ := storage.As[past.Historian](storage.Backend(b))
	scan, err := h.Scan(ctx, past.Range{}, past.ScanOptions{KeysOnly: true, Count: true})
	if err != nil || !scan.More || scan.Count != keys || len(scan.Records) == 0 {
		t.Errorf("got %d of %d records, more is %v, error %v", len(scan.Records), scan.Count, scan.More, err)
	}
}

// Compact waits for readers that have not taken the changes yet, until its context ends.
func TestCompactionWaitsForReaders(t *testing.T) {
	t.Parallel()
	s := newStore()
	s.mu.Lock()
	reader, leave := s.history.addReader(s.at)
	s.put(key.Of(newResource("a").Id), newResource("a"), 1)
	newest := int64(s.at)
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Compact(ctx, newest); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got error %v, expected DeadlineExceeded", err)
	}
	if oldest, _, _ := s.Revisions(t.Context()); oldest != int64(reader.at) {
		t.Errorf("the oldest revision is %d although a reader is at %d", oldest, reader.at)
	}
	done := make(chan error)
	go func() { done <- s.Compact(t.Context(), newest) }()
	s.mu.Lock()
	leave()
	s.mu.Unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if oldest, _, _ := s.Revisions(t.Context()); oldest != newest {
		t.Errorf("the oldest revision is %d, expected %d", oldest, newest)
	}
}

// A write that waits for space in history ends with its context and changes nothing.
func TestWriteWaitsForSpaceUntilDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // the deadline passes while the write waits
		b := New(&Options{History: 1})
		defer b.Close()
		s := b.handle.store
		s.mu.Lock()
		_, leave := s.history.addReader(s.at)
		s.mu.Unlock()
		for _, name := range []string{"a", "b"} { // the reader lets history exceed its bound by one change
			if _, err := b.WriteCAS(t.Context(), newResource(name)); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.WriteCAS(ctx, newResource("c")); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "nothing was written") {
			t.Errorf("got error %v, expected DeadlineExceeded and that nothing was written", err)
		}
		s.mu.Lock()
		leave()
		s.mu.Unlock()
		if _, err := b.Read(t.Context(), storage.StrongConsistency, newResource("c").Id); !errors.Is(err, storage.ErrNotFound) {
			t.Errorf("the read returned error %v, expected ErrNotFound", err)
		}
	})
}

// History begins between two transactions, whichever bound drops changes, and a revision inside a transaction shows the state before it.
func TestHistoryBeginsBetweenTransactions(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	b := New(&Options{History: 4})
	t.Cleanup(func() { _ = b.Close() }) // never fails
	h, _ := storage.As[past.Historian](storage.Backend(b))
	for i := range 5 {
		var ops []storage.Op
		for j := range 3 {
			ops = append(ops, storage.Op{Write: newResource(fmt.Sprint(i, "-", j))})
		}
		if _, err := b.Commit(ctx, ops); err != nil {
			t.Fatal(err)
		}
	}
	oldest, newest, err := h.Revisions(ctx)
	if err != nil || newest != 16 || oldest != 13 {
		t.Fatalf("the revisions are %d to %d, %v, expected 13 to 16", oldest, newest, err)
	}
	for revision := oldest; revision <= newest; revision++ {
		scan, err := h.Scan(ctx, past.Range{}, past.ScanOptions{Revision: revision})
		if want := map[bool]int{false: 12, true: 15}[revision == newest]; err != nil || len(scan.Records) != want {
			t.Errorf("at revision %d the store has %d resources, %v, expected %d", revision, len(scan.Records), err, want)
		}
	}
	if err := h.Compact(ctx, newest-1); err != nil {
		t.Fatal(err)
	}
	if oldest, _, err := h.Revisions(ctx); err != nil || oldest != 13 {
		t.Errorf("the oldest revision is %d, %v, after a compaction inside a transaction, expected 13", oldest, err)
	}
}
