//go:build integration

package storetest_test

import (
	"testing"

	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/testenv"
	_ "github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/store/storetest"
)

func TestMain(m *testing.M) {
	if !storetest.ServePeer() {
		testenv.Main(m)
	}
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	storetest.Run(t, at(func(t testing.TB) string { return testenv.Postgres(t).StoreURL(t) }))
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	storetest.Run(t, at(func(t testing.TB) string { return testenv.Etcd(t).StoreURL(t) }))
}

func TestDynamoDB(t *testing.T) {
	t.Parallel()
	h := at(func(t testing.TB) string { return testenv.DynamoDB(t).StoreURL(t) })
	h.Exempt = map[string]string{
		"S1": "changes of several objects have no order, so a View is no cut and ends of commits are not told",
		"S3": "its watches cannot prove how far they are, so there are no Linearizable Views",
	}
	storetest.Run(t, h)
}

func TestPeersOnPostgres(t *testing.T) {
	t.Parallel()
	storetest.RunPeers(t, testenv.Postgres(t).StoreURL(t), true)
}

func TestPeersOnEtcd(t *testing.T) {
	t.Parallel()
	storetest.RunPeers(t, testenv.Etcd(t).StoreURL(t), true)
}

func TestPeersOnDynamoDB(t *testing.T) {
	t.Parallel()
	storetest.RunPeers(t, testenv.DynamoDB(t).StoreURL(t), false)
}
