//go:build integration

package main

import (
	"testing"

	"github.com/ashlar-dev/storage/internal/test/env"
)

func TestMain(m *testing.M) { env.Main(m) }

func init() {
	urls["postgres"] = func(t *testing.T) string { return env.Postgres(t).StoreURL(t) }
	urls["etcd"] = func(t *testing.T) string { return env.Etcd(t).StoreURL(t) }
}
