//go:build integration

package kubernetes

import (
	"errors"
	"testing"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) { env.Main(m) }

func init() {
	engines = append(engines,
		// Upstream's tests take 150 ms without an event as the end of a watch's output, and their etcd does not sync its disk. Postgres
		// does not sync here either, because tests of other packages keep its disk busy for minutes.
		engine{name: "postgres", prepare: each(func(t testing.TB) storage.Backend {
			return open(t, env.Postgres(t).StoreURL(t, "synchronous_commit=off"))
		})},
		engine{name: "etcd", alone: true, prepare: func(t testing.TB) func(testing.TB, bool) storage.Backend {
			server := env.StartEtcd(t) // its own server, because tests compact all of it
			return func(t testing.TB, untouched bool) storage.Backend {
				if untouched {
					return open(t, env.StartEtcd(t).StoreURL(t))
				}
				return open(t, server.StoreURL(t))
			}
		}, notCached: map[string]string{
			"RunTestList/without snapshots": "takes the first write to be revision 2, which here is that of the store's own mark",
			"RunWatchSemantics":             "takes an empty store to be at revision 1, where the cluster was before the store was made",
		}},
	)
}

// DynamoDB does not number changes, so it has no resource versions.
func TestRefusesDynamoDB(t *testing.T) {
	t.Parallel()
	b := open(t, env.DynamoDB(t).StoreURL(t))
	defer b.Close()
	if store, err := New(b, nil); !errors.Is(err, storage.ErrInvalid) {
		if err == nil {
			store.Close()
		}
		t.Errorf("a store in DynamoDB: %v, want ErrInvalid", err)
	}
}
