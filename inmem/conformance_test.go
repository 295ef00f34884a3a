package inmem_test

import (
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/internal/test/stores"
)

func TestConformance(t *testing.T) {
	h := stores.Memory
	h.NoBulk = "the store is in memory already, and a transaction costs no round trip"
	conformance.Run(t, h)
}
