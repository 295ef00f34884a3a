package inmem_test

import (
	"bytes"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/inmem"
)

var stores atomic.Int64

func TestConformance(t *testing.T) {
	conformance.Run(t, conformance.Harness{
		NoBulk: "the store is in memory already, and a transaction costs no round trip",
		URL:    func(testing.TB) string { return fmt.Sprintf("mem://conformance-%d", stores.Add(1)) },
		Backup: func(t testing.TB, b storage.Backend) func() storage.Backend {
			var saved bytes.Buffer
			if err := b.(*inmem.Backend).Snapshot(t.Context(), &saved); err != nil {
				t.Fatal(err)
			}
			return func() storage.Backend {
				if err := b.(*inmem.Backend).Restore(t.Context(), &saved); err != nil {
					t.Fatal(err)
				}
				return b
			}
		},
	})
}
