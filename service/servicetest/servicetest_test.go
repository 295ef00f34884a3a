package servicetest_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/inmem"
	"github.com/ashlar-dev/storage/service/servicetest"
	"github.com/ashlar-dev/storage/sqlite"
)

// transports has all transports between a client and the service.
var transports = map[string]servicetest.Transport{
	"Local":      servicetest.Local,
	"GRPC":       servicetest.OverGRPC(servicetest.Name),
	"Compatible": servicetest.OverGRPC(servicetest.CompatibleName),
}

// everyTransport runs the suite over each transport.
func everyTransport(t *testing.T, h servicetest.Harness) {
	t.Helper()
	for name, transport := range transports {
		t.Run(name, func(t *testing.T) {
			h.Transport = transport
			servicetest.Run(t, h)
		})
	}
}

func TestMemory(t *testing.T) {
	everyTransport(t, servicetest.Harness{
		Open: func(testing.TB) storage.Backend { return inmem.New(nil) },
		Restore: func(t testing.TB, b storage.Backend) {
			var saved bytes.Buffer
			if err := b.(*inmem.Backend).Snapshot(t.Context(), &saved); err != nil {
				t.Fatal(err)
			}
			if err := b.(*inmem.Backend).Restore(t.Context(), &saved); err != nil {
				t.Fatal(err)
			}
		},
	})
}

func TestSQLite(t *testing.T) {
	everyTransport(t, servicetest.Harness{Slow: true, Open: func(t testing.TB) storage.Backend {
		b, err := sqlite.New(t.Context(), filepath.Join(t.TempDir(), "store.db"), nil)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}})
}

// TestPlain runs the suite over a backend without capabilities, whose deletions are not transactions.
func TestPlain(t *testing.T) {
	servicetest.Run(t, servicetest.Harness{Open: func(testing.TB) storage.Backend { return struct{ storage.Backend }{inmem.New(nil)} }})
}
