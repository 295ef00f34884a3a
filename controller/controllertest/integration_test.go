//go:build integration

package controllertest_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/controller/controllertest"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) { env.Main(m) }

func overNetwork(t *testing.T, url func(testing.TB) string) {
	t.Helper()
	t.Parallel()
	controllertest.Test(t, func(t *testing.T) storage.Backend { return fixture.Open(t, url(t)) })
}

func TestPostgres(t *testing.T) {
	overNetwork(t, func(t testing.TB) string { return env.Postgres(t).StoreURL(t) })
}

func TestEtcd(t *testing.T) {
	overNetwork(t, func(t testing.TB) string { return env.Etcd(t).StoreURL(t) })
}

func TestDynamoDB(t *testing.T) {
	overNetwork(t, func(t testing.TB) string { return env.DynamoDB(t).StoreURL(t, "poll=10ms", "idle-poll=200ms") })
}
