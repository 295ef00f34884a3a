//go:build integration

package servicetest_test

import (
	"testing"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/testenv"
	_ "github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/service/servicetest"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// opened opens a store by its URL.
func opened(t testing.TB, url string) storage.Backend {
	t.Helper()
	b, err := storage.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestPostgres(t *testing.T) {
	server := testenv.Postgres(t)
	everyTransport(t, servicetest.Harness{Open: func(t testing.TB) storage.Backend { return opened(t, server.StoreURL(t)) }})
}

func TestEtcd(t *testing.T) {
	everyTransport(t, servicetest.Harness{Open: func(t testing.TB) storage.Backend { return opened(t, testenv.Etcd(t).StoreURL(t)) }})
}

// TestDynamoDB runs on AWS's emulator, which does some hundred writes a second for all cases together.
func TestDynamoDB(t *testing.T) {
	everyTransport(t, servicetest.Harness{
		Open: func(t testing.TB) storage.Backend {
			return opened(t, testenv.DynamoDB(t).StoreURL(t, "poll=10ms", "idle-poll=200ms"))
		},
		Slow: true,
	})
}
