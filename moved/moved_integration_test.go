//go:build integration

package moved_test

import (
	"testing"

	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestFollowServers moves a store through databases of several servers while a program writes to it and watches it.
func TestFollowServers(t *testing.T) {
	t.Parallel()
	t.Run("SQLite, Postgres, etcd, memory", func(t *testing.T) {
		t.Parallel()
		testFollow(t, sqliteURL(t), env.Postgres(t).StoreURL(t), env.Etcd(t).StoreURL(t), memoryURL(t))
	})
}

// TestRefusalsOfOldServers is TestRefusalsOfTheOldStore with databases of servers.
func TestRefusalsOfOldServers(t *testing.T) {
	t.Parallel()
	testRefusals(t, "Postgres", func(t testing.TB) string { return env.Postgres(t).StoreURL(t) })
	testRefusals(t, "etcd", func(t testing.TB) string { return env.Etcd(t).StoreURL(t) })
}
