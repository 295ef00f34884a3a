package inmem

import (
	"context"
	"fmt"
	"testing"

	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The cost of a sparse filter is its matches plus a few probes for each group that it skips.
func TestSparseFilterSkips(t *testing.T) {
	t.Parallel()
	b := New(nil)
	t.Cleanup(func() { _ = b.Close() }) // never fails
	const partitions, each = 20, 500
	for p := range partitions {
		for i := range each {
			namespace := "other"
			if i == each/2 {
				namespace = "shop"
			}
			k := key.Key{Group: "g", Kind: "k", Partition: fmt.Sprintf("p%02d", p), Namespace: namespace, Name: fmt.Sprint(i)}
			if _, err := b.WriteCAS(context.Background(), &resourcepb.Resource{Id: k.ID("u", "v1")}); err != nil {
				t.Fatal(err)
			}
		}
	}
	tree, _, _ := b.handle.snapshot()
	found := 0
	sparse := &key.Filter{Group: "g", Kind: "k", Partition: "*", Namespace: "shop"}
	visited := visitItems(tree, sparse, key.Key{}, nil, func(*item) bool { found++; return true })
	if found != partitions {
		t.Errorf("found %d matches, expected %d", found, partitions)
	}
	if limit := partitions * (2*maxMismatches + 2); visited > limit {
		t.Errorf("visited %d items for %d matches among %d resources, expected %d at most", visited, found, partitions*each, limit)
	}
}
