//go:build integration

package migrate

import (
	"testing"

	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) {
	if child() {
		return
	}
	env.Main(m)
}

func kinds() []storeKind {
	return append(local,
		storeKind{"postgres", func(t testing.TB) string { return env.Postgres(t).StoreURL(t) }},
		storeKind{"etcd", func(t testing.TB) string { return env.Etcd(t).StoreURL(t) }},
		storeKind{"dynamodb", func(t testing.TB) string { return env.DynamoDB(t).StoreURL(t) }},
	)
}
