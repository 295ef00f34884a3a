//go:build integration

package main

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/testenv"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func init() {
	urls["postgres"] = func(t *testing.T) string { return testenv.Postgres(t).StoreURL(t) }
	urls["etcd"] = func(t *testing.T) string { return testenv.Etcd(t).StoreURL(t) }
}
