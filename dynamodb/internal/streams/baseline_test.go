package streams

import (
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
)

// A baseline of many keys finds each of them, with offsets of only a few in memory.
func TestBaseline(t *testing.T) {
	t.Parallel()
	const keys = 50_000
	b := NewBaseline()
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
		between := name(i)
		between.Name += "x"
		if b.has(between, 1) {
			t.Fatalf("the baseline has a key after %d that was not added", i)
		}
	}
	if b.has(key.Key{Group: "a"}, 1) || b.has(key.Key{Group: "z"}, 1) || (*Baseline)(nil).has(name(0), 1) {
		t.Error("the baseline has a key outside of the added range")
	}
}
