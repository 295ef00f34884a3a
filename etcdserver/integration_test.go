//go:build integration

package etcdserver_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/etcdserver"
	"github.com/ashlar-dev/storage/internal/test/dynamofake"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	_ "github.com/ashlar-dev/storage/postgres"
)

func TestMain(m *testing.M) { env.Main(m) }

// These engines run all engine tests, too.
func init() {
	engines["postgres"] = func(t *testing.T) string { return env.Postgres(t).StoreURL(t) }
	aloneOn["postgres"] = engines["postgres"]
	engines["etcd"] = func(t *testing.T) string { return env.Etcd(t).StoreURL(t) }
	aloneOn["etcd"] = func(t *testing.T) string { return env.StartEtcd(t).StoreURL(t) }
}

func TestEtcdItself(t *testing.T) {
	t.Parallel()
	got := runScript(t, env.StartEtcd(t).Client(t))
	if os.Getenv("ASHLAR_RECORD") != "" {
		if err := os.WriteFile("testdata/script.txt", []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sameAsEtcd(t, got)
}

func TestEtcdItselfUnderHostileRequests(t *testing.T) {
	t.Parallel()
	const file = "testdata/hostile.txt"
	got := hostile(t, env.StartEtcd(t).Client(t))
	if os.Getenv("ASHLAR_RECORD") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	sameAs(t, file, got)
}

func TestDynamoDBIsRefused(t *testing.T) {
	t.Parallel()
	_, err := etcdserver.New(fixture.Open(t, dynamofake.New(t).URL()), nil)
	if !errors.Is(err, storage.ErrInvalid) || !strings.Contains(err.Error(), "numbers its changes") {
		t.Errorf("a store without revisions: %v", err)
	}
}
