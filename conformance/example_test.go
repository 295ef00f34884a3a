package conformance_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance"
	_ "github.com/ashlar-dev/storage/inmem"
)

// The test file of an adapter with a URL contains one function like this one, named TestConformance.
func ExampleRun() {
	var stores atomic.Int64
	_ = func(t *testing.T) {
		conformance.Run(t, conformance.Harness{
			URL: func(testing.TB) string { return fmt.Sprintf("mem://example-%d", stores.Add(1)) },
		})
	}
}

// A layer that passes on reads, writes and watches, but no capability, gives the reason for each one that it lacks.
func ExampleRun_layer() {
	_ = func(t *testing.T) {
		conformance.Run(t, conformance.Harness{
			Open: func(t testing.TB) storage.Backend {
				b, err := storage.Open(t.Context(), "mem://")
				if err != nil {
					t.Fatal(err)
				}
				return struct{ storage.Backend }{b}
			},
			OneHandle:    "each store is private to its handle",
			NoPager:      "the layer would have to hold the listing",
			NoResumer:    "the layer has no history of its own",
			NoTransactor: "the layer sees one resource at a time",
			NoHistorian:  "the layer keeps no versions",
			NoMover:      "only the store below the layer is moved",
		})
	}
}
