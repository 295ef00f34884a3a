package backend

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/ashlar-dev/storage/driver"
)

// silentSource becomes ready and publishes nothing.
type silentSource struct{ driver.Source[uint64] }

func (silentSource) Run(ctx context.Context, ready func(uint64), _ func([]*driver.Event[uint64], uint64)) error {
	ready(1)
	<-ctx.Done()
	return nil
}

// The goroutine that awaits the move is started before the first watch opens. A program that lists its goroutines then, and again later,
// finds no new one.
func TestAwaitingMovePrecedesReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int32
		m := &moveWatcher[uint64]{source: silentSource{}, readMove: func(context.Context) error { reads.Add(1); return nil }}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		err := m.run(ctx, func(uint64) {
			synctest.Wait()
			if reads.Load() == 0 {
				t.Error("the source is ready, and nothing has read the fence")
			}
			cancel()
		}, nil)
		if err != nil {
			t.Error(err)
		}
	})
}
