//go:build integration && soak

package upgrade

import (
	"context"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-dev/storage"
	"github.com/ashlar-dev/storage/conformance/faults"
	_ "github.com/ashlar-dev/storage/dynamodb"
	_ "github.com/ashlar-dev/storage/etcd"
	"github.com/ashlar-dev/storage/internal/test/env"
	"github.com/ashlar-dev/storage/internal/test/fixture"
	"github.com/ashlar-dev/storage/internal/test/torture"
	"github.com/ashlar-dev/storage/postgres"
	_ "github.com/ashlar-dev/storage/sqlite"
)

func TestMain(m *testing.M) { env.Main(m) }

// TestUpgrade lets the previous release create a store. Then processes of both releases write, read and watch it; a process that was killed is
// continued by one of the other release, forward and back. During the run the schema is upgraded.
//
// ASHLAR_PREVIOUS and ASHLAR_CURRENT are the executable files of the two releases (make test-upgrade builds them).
func TestUpgrade(t *testing.T) {
	t.Run("sqlite", func(t *testing.T) {
		run(t, "memory", "sqlite://"+filepath.ToSlash(filepath.Join(t.TempDir(), "store.db")), func(*faults.Harness) {})
	})
	t.Run("postgres", func(t *testing.T) {
		storeURL := env.Postgres(t).StoreURL(t)
		run(t, "postgres", storeURL, func(h *faults.Harness) {
			h.Faults = append(h.Faults, faults.Fault{Kind: "upgrade", Inject: func(ctx context.Context, _ *rand.Rand) (func(context.Context) error, error) {
				u, err := url.Parse(storeURL)
				if err == nil {
					_, err = postgres.UpgradeSchema(ctx, u)
				}
				return nil, err
			}})
		})
	})
	t.Run("etcd", func(t *testing.T) { run(t, "etcd", env.Etcd(t).StoreURL(t), func(*faults.Harness) {}) })
	t.Run("dynamodb", func(t *testing.T) {
		run(t, "dynamodb", env.DynamoDB(t).StoreURL(t, "timeout=2m", "poll=10ms", "idle-poll=200ms"), func(h *faults.Harness) {
			h.ListIsNoSnapshot = "DynamoDB reads different partitions, and different pages, at different moments"
			h.NoOrderAcrossKeys = "each shard of a stream has an order of its own"
			h.NoHistorian = "DynamoDB has no numbers across keys, and keeps no versions"
			h.NoBookmarker = "a shard of a stream does not report its lag behind the table"
			h.NoCommitBounds = "the records of one transaction arrive through several shards"
		})
	})
}

func run(t *testing.T, seeds, storeURL string, adapt func(*faults.Harness)) {
	torture.Run(t, seeds, func(t *testing.T, o faults.Options) {
		previous, current := program(t, "ASHLAR_PREVIOUS"), program(t, "ASHLAR_CURRENT")
		create(t, storeURL, previous)
		processes := faults.NewProcesses(storeURL, previous, current)
		h := faults.Harness{
			Open: processes.Open, Around: torture.Opener(storeURL), Faults: processes.Faults(), Exempt: map[faults.Kind]string{},
			IgnoreGoroutines: []string{"net/http.(*persistConn).readLoop", "net/http.(*persistConn).writeLoop"},
		}
		adapt(&h)
		for _, kind := range faults.Kinds() {
			if kind != faults.KillClient && kind != faults.FreezeClient {
				h.Exempt[kind] = "TestTorture of the adapter does it"
			}
		}
		faults.Test(t, h, o)
	})
}

func program(t *testing.T, variable string) string {
	file := os.Getenv(variable)
	if file == "" {
		t.Fatalf("%s is not set: run make test-upgrade PREVIOUS=<commit>", variable)
	}
	return file
}

// create creates a store by a program.
func create(t *testing.T, storeURL, program string) {
	t.Helper()
	b, err := faults.NewProcesses(storeURL, program).Open(fixture.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	separator := "?"
	if strings.Contains(storeURL, "?") {
		separator = "&"
	}
	existing, err := storage.Open(fixture.Context(t), storeURL+separator+"create=off")
	if err != nil {
		t.Fatalf("this release does not open the store: %v", err)
	}
	if err := existing.Close(); err != nil {
		t.Fatal(err)
	}
}
