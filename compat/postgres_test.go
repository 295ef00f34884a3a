//go:build integration

package compat

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/testenv"
	_ "github.com/ashlar-dev/storage/postgres"
)

func init() {
	stores["postgres"] = func(t testing.TB) string { return testenv.Postgres(t).StoreURL(t) }
}

func TestMain(m *testing.M) { testenv.Main(m) }
