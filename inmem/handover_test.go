package inmem

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/internal/handover/handovertest"
)

func TestHandover(t *testing.T) {
	t.Parallel()
	handovertest.Run(t, func(t *testing.T) (one, other storage.Backend) {
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
	})
}
