//go:build integration

package migrate

import (
	"testing"

	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/testenv"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	testenv.Main(m)
}

func kinds() []storeKind {
	return append(local,
		storeKind{"postgres", func(t testing.TB) string { return testenv.Postgres(t).StoreURL(t) }},
		storeKind{"etcd", func(t testing.TB) string { return testenv.Etcd(t).StoreURL(t) }},
		storeKind{"dynamodb", func(t testing.TB) string { return testenv.DynamoDB(t).StoreURL(t) }},
	)
}
