//go:build integration

package tablestest_test

import (
	"testing"

	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
	"github.com/ashlar-dev/storage/typed/tables/tablestest"
)

func TestMain(m *testing.M) {
	if !tablestest.ServePeer() {
		env.Main(m)
	}
}

// slow returns a harness for the databases of a server.
func slow(url func(testing.TB) string) tablestest.Harness {
	h := harnessAt(url)
	h.Slow = true
	return h
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	tablestest.Run(t, slow(func(t testing.TB) string { return env.Postgres(t).StoreURL(t) }))
}

func TestEtcd(t *testing.T) {
	t.Parallel()
	tablestest.Run(t, slow(func(t testing.TB) string { return env.Etcd(t).StoreURL(t) }))
}

func TestDynamoDB(t *testing.T) {
	t.Parallel()
	h := slow(func(t testing.TB) string { return env.DynamoDB(t).StoreURL(t) })
	h.Exempt = map[string]string{
		"S1": "changes of several objects have no order, so a View is not a cut and commits have no marked end",
		"S3": "its watches have no bookmarks, so there are no Linearizable Views",
	}
	tablestest.Run(t, h)
}

func TestPeersOnPostgres(t *testing.T) {
	t.Parallel()
	tablestest.RunPeers(t, tablestest.PeerOptions{URL: env.Postgres(t).StoreURL(t), Ordered: true, Slow: true})
}

func TestPeersOnEtcd(t *testing.T) {
	t.Parallel()
	tablestest.RunPeers(t, tablestest.PeerOptions{URL: env.Etcd(t).StoreURL(t), Ordered: true, Slow: true})
}

func TestPeersOnDynamoDB(t *testing.T) {
	t.Parallel()
	tablestest.RunPeers(t, tablestest.PeerOptions{URL: env.DynamoDB(t).StoreURL(t), Slow: true})
}
