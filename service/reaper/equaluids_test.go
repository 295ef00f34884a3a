package reaper_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/ashlar-dev/storage/resourcepb"
)

// Two resources may have one uid: a program that writes to the store has copied one of them. Each leaves a tombstone.
func TestOwnersWithEqualUids(t *testing.T) {
	f := newForest(t)
	first := f.write("first", nil, nil)
	second := proto.CloneOf(first)
	second.Name = "second"
	if _, err := f.backend.WriteCAS(f.ctx, &resourcepb.Resource{Id: second}); err != nil {
		t.Fatal(err)
	}
	f.write("child", second, nil)
	f.delete(first)
	f.delete(second)
	if n := f.count(stones); n != 2 {
		t.Fatalf("there are %d tombstones of two deleted resources", n)
	}
	f.reap()
	f.until(nodes, 0)
	f.until(stones, 0)
}
