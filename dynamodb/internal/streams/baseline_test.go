package streams

import (
	"fmt"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver/key"
)

// A baseline of many keys finds each of them, with offsets of only a few in memory.
func TestBaseline(t *testing.T) {
	t.Parallel()
	const keys = 50_000
	began := time.UnixMilli(1 << 40)
	b := NewBaseline(began)
	defer b.Close()
	name := func(i int) key.Key {
		return key.Key{Group: "g", Kind: "k", Partition: "p", Namespace: "n", Name: fmt.Sprintf("%06d", 2*i)}
	}
	for i := range keys {
		if err := b.Add(name(i), uint64(i+10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Seal(); err != nil {
		t.Fatal(err)
	}
	if maxOffsets := keys/baselineEvery + 1; len(b.positions) > maxOffsets {
		t.Errorf("%d offsets in memory, expected %d", len(b.positions), maxOffsets)
	}
	for i := 0; i < keys; i += 111 {
		for count, want := range map[uint64]bool{uint64(i): true, uint64(i + 10): true, uint64(i + 11): false} {
			if got := b.has(name(i), count); got != want {
				t.Fatalf("has(key %d, count %d) is %v, expected %v", i, count, got, want)
			}
		}
	}
	// A key without a tombstone was deleted long before the scan, or it was created after it.
	deleted, created := uint64(began.Add(-time.Hour).UnixMilli()), uint64(began.Add(-20*time.Minute).UnixMilli())
	for _, absent := range []key.Key{{Group: "a"}, {Group: "z"}, {Group: "g", Kind: "k", Partition: "p", Namespace: "n", Name: "000004x"}} {
		if !b.has(absent, deleted) || b.has(absent, created) {
			t.Errorf("%v: old %v, new %v; expected only the old state in the baseline", absent, b.has(absent, deleted), b.has(absent, created))
		}
	}
	if (*Baseline)(nil).has(name(0), 1) {
		t.Error("no baseline has a key")
	}
}
