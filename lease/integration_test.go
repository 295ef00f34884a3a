//go:build integration

package lease_test

import (
	"testing"

	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/testenv"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) { testenv.Main(m) }

func TestOneAtATimeOnPostgres(t *testing.T) {
	t.Parallel()
	oneAtATime(t, opened(t, testenv.Postgres(t).StoreURL(t))...)
}

func TestOneAtATimeOnEtcd(t *testing.T) {
	t.Parallel()
	oneAtATime(t, opened(t, testenv.Etcd(t).StoreURL(t))...)
}

func TestOneAtATimeOnDynamoDB(t *testing.T) {
	t.Parallel()
	oneAtATime(t, opened(t, testenv.DynamoDB(t).StoreURL(t))...)
}
