package servicetest_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/internal/test/stores"
	"github.com/ashlar-dev/storage/service/servicetest"
)

func TestMain(m *testing.M) { stores.Main(m) }

// TestService runs the suite over each transport and each store. Transports and stores are independent, so the stores other than memory are tested
// with the transport that has the most layers.
func TestService(t *testing.T) {
	for name, h := range stores.All {
		for transport, connect := range map[string]servicetest.Transport{
			"Local":      servicetest.Local,
			"GRPC":       servicetest.OverGRPC(servicetest.Name),
			"Compatible": servicetest.OverGRPC(servicetest.CompatibleName),
		} {
			h.Slow = name != "Memory"
			if !h.Slow || transport == "Compatible" {
				t.Run(name+transport, func(t *testing.T) { servicetest.Run(t, servicetest.Harness{Harness: h, Transport: connect}) })
			}
		}
	}
}

// TestPlain runs the suite over a backend without capabilities, whose deletions are not transactions.
func TestPlain(t *testing.T) {
	servicetest.Run(t, servicetest.Harness{Harness: conformance.Harness{
		Open: func(testing.TB) storage.Backend { return struct{ storage.Backend }{inmem.New(nil)} },
	}})
}
