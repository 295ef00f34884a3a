package inmem

import (
	"context"
	"testing"

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
