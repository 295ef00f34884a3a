package inmem

import (
	"context"
	"testing"
	"time"

	"github.com/ashlar-dev/storage/driver"
	"github.com/ashlar-dev/storage/resourcepb"
)

// The source of a closed handle ends even if other handles write without pause.
func TestSourceStopsUnderWrites(t *testing.T) {
	t.Parallel()
	b := New(nil)
	res := &resourcepb.Resource{Id: &resourcepb.ID{Uid: "u", Name: "n", Type: &resourcepb.Type{Group: "g", Kind: "k"}, Tenancy: &resourcepb.Tenancy{}}}
	rewrite := func() {
		var err error
		if res, err = b.WriteCAS(context.Background(), res); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	published := 0
	err := source{store: b.handle.store}.Run(ctx, func(position) { rewrite() }, func([]*driver.Event[position], position) {
		cancel()
		if published++; published < 1000 {
			rewrite()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if published > 1 {
		t.Errorf("the source published %d batches after its context ended", published-1)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
}
