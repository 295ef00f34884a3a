//go:build integration

package compat

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
)

func init() {
	stores["postgres"] = func(t testing.TB) string { return env.Postgres(t).StoreURL(t) }
}

func TestMain(m *testing.M) { env.Main(m) }
