//go:build integration

package postgres

import (
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/driver/key"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/resourcepb"
)

// TestFencedBatch writes to a closed store by transactions of one operation each, many concurrently. The refusal names no
// operation, whatever batch it was sent in.
func TestFencedBatch(t *testing.T) {
	t.Parallel()
	b := opened(t, fixture.Context(t))
	target := "elsewhere"
	if err := b.handle.SetFence(fixture.Context(t), &target); err != nil {
		t.Fatal(err)
	}
	var calls sync.WaitGroup
	for i := range 32 {
		calls.Go(func() {
			k := key.Key{Group: "g", Kind: "Kind", Name: strconv.Itoa(i)}
			_, err := b.Commit(fixture.Context(t), []storage.Op{{Write: &resourcepb.Resource{Id: k.ID("uid", "v1")}}})
			var one *storage.OpError
			if !errors.Is(err, storage.ErrFenced) || errors.As(err, &one) {
				t.Errorf("%v, expected ErrFenced, and no OpError", err)
			}
		})
	}
	calls.Wait()
}
