package dynamodb

import (
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
)

// What a snapshot showed of many keys is found again, in memory for a few of them only.
func TestShown(t *testing.T) {
	t.Parallel()
	const keys = 50_000
	s := newShown()
	defer s.drop()
	name := func(i int) key.Key {
		return key.Key{Group: "g", Kind: "k", Partition: "p", Namespace: "n", Name: fmt.Sprintf("%06d", 2*i)}
	}
	for i := range keys {
		if err := s.add(name(i), uint64(i+10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.rows.Seal(); err != nil {
		t.Fatal(err)
	}
	if most := keys/shownEvery + 1; len(s.places) > most {
		t.Errorf("%d places in memory, expected %d", len(s.places), most)
	}
	for i := 0; i < keys; i += 111 {
		for count, want := range map[uint64]bool{uint64(i): true, uint64(i + 10): true, uint64(i + 11): false} {
			if got := s.has(name(i), count); got != want {
				t.Fatalf("key %d, count %d: %v", i, count, got)
			}
		}
		between := name(i)
		between.Name += "x"
		if s.has(between, 1) {
			t.Fatalf("has a key after %d that was not shown", i)
		}
	}
	if s.has(key.Key{Group: "a"}, 1) || s.has(key.Key{Group: "z"}, 1) || (*shown)(nil).has(name(0), 1) {
		t.Error("has a key outside of what was shown")
	}
}
