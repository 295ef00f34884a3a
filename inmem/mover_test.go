package inmem

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/mover"
)

func TestMover(t *testing.T) {
	t.Parallel()
	mover.Run(t, mover.Harness{
		Open: func(t *testing.T) (one, other storage.Backend) {
			a := New(nil)
			b := open(a.handle.store, nil)
			t.Cleanup(func() {
				for _, h := range []*Backend{a, b} {
					if err := h.Close(); err != nil {
						t.Error(err)
					}
				}
			})
			return a, b
		},
		NoBulkReader: "the store is in memory already",
		NoLoader:     "a transaction costs no round trip",
	})
}
