//go:build integration

package servicetest_test

import (
	"testing"
	"time"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/service/servicetest"
)

func TestMain(m *testing.M) { env.Main(m) }

// overNetwork runs the suite over the transport with the most layers. Transports and stores are independent, and all transports are tested on
// memory and SQLite.
func overNetwork(t *testing.T, url func(testing.TB) string) {
	t.Helper()
	servicetest.Run(t, servicetest.Harness{
		Open: func(t testing.TB) storage.Backend {
			b, err := storage.Open(t.Context(), url(t))
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		Transport: servicetest.OverGRPC(servicetest.CompatibleName),
		Slow:      true,
		Timeout:   3 * time.Minute, // the machine may be busy with other databases
	})
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
