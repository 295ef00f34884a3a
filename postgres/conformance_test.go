//go:build integration

package postgres_test

import (
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/internal/testenv"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestConformance(t *testing.T) {
	server := testenv.Postgres(t)
	conformance.Run(t, conformance.Harness{
		URL:               func(t testing.TB) string { return server.StoreURL(t) },
		NoOrderAcrossKeys: "Postgres has no order of commits that readers can see; events of different keys may be swapped",
	})
}
