package inmem

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

func thing(name string) *resourcepb.Resource {
	return &resourcepb.Resource{Id: key.Key{Group: "g", Kind: "k", Name: name}.ID("u", "v1")}
}

// A reading of the present needs no history: a compaction that overtakes it does not end it.
func TestCompactionOvertakesReadingOfPresent(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := New(nil)
	t.Cleanup(func() { _ = b.Close() }) // never fails
	if _, err := b.WriteCAS(ctx, thing("a")); err != nil {
		t.Fatal(err)
	}
	past, err := b.handle.ReadAt(ctx, &driver.PastQuery[position]{}, func(*driver.Version) error {
		if _, err := b.WriteCAS(ctx, thing("b")); err != nil {
			return err
		}
		_, newest, err := b.handle.Revisions(ctx)
		if err != nil {
			return err
		}
		return b.handle.Compact(ctx, newest)
	})
	if err != nil || past.At != 2 {
		t.Errorf("read at %d: %v", past.At, err)
	}
}

// What was before an old change of a key costs no more than what was before a new one, however often the key was written since: the
// lock is held meanwhile.
func TestBeforeOldChangesOfOneKey(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := New(nil)
	t.Cleanup(func() { _ = b.Close() }) // never fails
	const writes, page = 50_000, 500
	res := thing("a")
	for range writes {
		stored, err := b.WriteCAS(ctx, res)
		if err != nil {
			t.Fatal(err)
		}
		res.Version = stored.Version
	}
	events := b.handle.history.events
	fastest := func(events []*driver.Event[position]) time.Duration {
		least := time.Hour
		for range 5 {
			begun := time.Now()
			versions, err := b.handle.Before(ctx, events)
			least = min(least, time.Since(begun))
			if err != nil {
				t.Fatal(err)
			}
			for i, v := range versions {
				if want := events[i].Revision - 1; v == nil && want > 1 || v != nil && v.Modified != want {
					t.Fatalf("before revision %d there was %v", events[i].Revision, v)
				}
			}
		}
		return least
	}
	old, recent := fastest(events[:page]), fastest(events[len(events)-page:])
	if old > 20*recent {
		t.Errorf("%d old changes took %v, as many new ones %v", page, old, recent)
	}
}

// A scan of many keys ends at a number of bytes, as one of resources does.
func TestKeysAreReadInParts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	b := New(nil)
	t.Cleanup(func() { _ = b.Close() }) // never fails
	const keys = 10_000
	for i := range keys {
		if _, err := b.WriteCAS(ctx, thing(strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	h, _ := storage.As[storage.Historian](storage.Backend(b))
	scan, err := h.Scan(ctx, storage.Span{}, storage.ScanOptions{KeysOnly: true, Count: true})
	if err != nil || !scan.More || scan.Count != keys || len(scan.Records) == 0 {
		t.Errorf("%d of %d records, more is %v: %v", len(scan.Records), scan.Count, scan.More, err)
	}
}
