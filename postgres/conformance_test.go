//go:build integration

package postgres_test

import (
	"flag"
	"testing"

	"github.com/ashlar-dev/storage/conformance"
	"github.com/ashlar-dev/storage/conformance/faults"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) {
	if faults.ServeProcess() {
		return
	}
	// Many of these tests wait for a fault to last. The flag, where it is given, wins: it is parsed later.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	env.Main(m)
}

func TestConformance(t *testing.T) {
	server := env.Postgres(t)
	conformance.Run(t, conformance.Harness{URL: func(t testing.TB) string { return server.StoreURL(t) }})
}
