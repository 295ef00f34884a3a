package dynamodb_test

import (
	"context"
	"sync"
	"testing"

	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/fixture"
)

// The first watch of a stream with many shards opens them, reads them and writes its ticks concurrently: requests of each kind are
// answered only when several of them have arrived.
func TestManyShardsOpenConcurrently(t *testing.T) {
	t.Parallel()
	const together = 32
	for _, op := range []string{"GetShardIterator", "PutItem"} {
		t.Run(op, func(t *testing.T) {
			t.Parallel()
			s := dynamofake.New(t)
			s.SetShards(together)
			b := handle(t, s)
			var mu sync.Mutex
			arrived, enough := 0, make(chan struct{})
			s.SetGate(func(got string) {
				if got != op {
					return
				}
				mu.Lock()
				if arrived++; arrived == together {
					close(enough)
				}
				mu.Unlock()
				select {
				case <-enough:
				case <-t.Context().Done():
				}
			})
			ctx, cancel := context.WithTimeout(t.Context(), fixture.Timeout)
			defer cancel()
			w, err := b.WatchList(ctx, boxType, tenancy, "")
			if err != nil {
				t.Fatalf("with %d of %d requests: %v", arrived, together, err)
			}
			w.Close()
		})
	}
}
